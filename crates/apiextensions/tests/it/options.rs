//! The servers for which definitions are validated.

use std::sync::LazyLock;

use apiextensions::validation::ValidationOptions;
use schema::TypeTable;

/// The options of a release of Kubernetes.
pub(crate) fn options(minor: u8) -> ValidationOptions {
    static TYPES: LazyLock<TypeTable> =
        LazyLock::new(|| TypeTable::parse(include_str!("../../../kinds/src/types/schemas.txt")));
    let object_meta = TYPES.in_release(minor).for_definition("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    ValidationOptions { minor, object_meta: object_meta.expect("every release has object metadata") }
}
