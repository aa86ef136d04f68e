//! Service accounts.

use object::table::cells::{AGE, NAME};

use crate::strategy::{KindStrategy, SubresourceStrategy, WritableFields};

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    returns_deleted_object: true,
    subresources: &[SubresourceStrategy::new("token", WritableFields::HandlerDefined)],
    columns: &[NAME, AGE],
    ..KindStrategy::DEFAULT
};
