//! Service accounts.

use api::json::JsonObject;
use object::table::cells::{AGE, NAME};
use serde_json::Value;

use crate::strategy::{KindStrategy, SubresourceStrategy, WritableFields};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    returns_deleted_object: true,
    prepare_for_create: |_, account| {
        keep_names_of_secrets(account);
        Ok(())
    },
    prepare_for_update: |_, account| {
        keep_names_of_secrets(account);
        Ok(())
    },
    subresources: &[SubresourceStrategy::new("token", WritableFields::HandlerDefined)],
    columns: &[NAME, AGE],
    ..KindStrategy::DEFAULT
};

/// Of a reference to a secret only the name counts.
fn keep_names_of_secrets(account: &mut JsonObject) {
    let secrets = account.get_mut("secrets").and_then(Value::as_array_mut).into_iter().flatten();
    secrets.filter_map(Value::as_object_mut).for_each(|secret| secret.retain(|field, _| field == "name"));
}
