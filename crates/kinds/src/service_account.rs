//! Service accounts.

use api::json::JsonObject;
use object::table::cells::{AGE, NAME};
use serde_json::Value;

use crate::strategy::{KindStrategy, SubresourceStrategy, WritableFields};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    returns_deleted_object: true,
    prepare_for_create: |_, new| {
        keep_names_of_secrets(new);
        Ok(())
    },
    prepare_for_update: |_, new| {
        keep_names_of_secrets(new);
        Ok(())
    },
    subresources: &[SubresourceStrategy::new("token", WritableFields::HandlerDefined)],
    columns: &[NAME, AGE],
    ..KindStrategy::DEFAULT
};

/// Drops everything but the names of secrets: they are in the namespace of the service account.
fn keep_names_of_secrets(object: &mut JsonObject) {
    for secret in object.get_mut("secrets").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(secret) = secret.as_object_mut() {
            secret.retain(|field, _| field == "name");
        }
    }
}
