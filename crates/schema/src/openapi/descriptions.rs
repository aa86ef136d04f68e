//! Descriptions of the fields that every object has, for `kubectl explain`. Other built-in fields have none.

/// The type of object metadata.
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
/// Describes the field `apiVersion` of every kind.
pub const API_VERSION: &str = "APIVersion defines the group and version in which the object is written.";
/// Describes the field `kind` of every kind.
pub const KIND: &str = "Kind is the name of the object's type. It cannot be updated.";
/// Describes the field `metadata` of objects.
pub const METADATA: &str = "Standard object's metadata.";
/// Describes the field `metadata` of lists.
pub const LIST_METADATA: &str = "Standard list's metadata.";

/// Describes a type.
pub(super) fn of_type(definition: &str) -> Option<&'static str> {
    (definition == OBJECT_META).then_some(METADATA)
}

/// Describes a field of a type.
pub(super) fn of_field(definition: &str, name: &str) -> Option<&'static str> {
    if definition != OBJECT_META {
        return None;
    }
    Some(match name {
        "annotations" => "Annotations are values by name that tools keep with the object. They cannot be selected by.",
        "creationTimestamp" => "CreationTimestamp is a timestamp of the object's creation. Set by the server.",
        "deletionGracePeriodSeconds" => "Seconds that the object has to shut down after its deletion was requested.",
        "deletionTimestamp" => "DeletionTimestamp is a timestamp of the requested deletion. Set by the server.",
        "finalizers" => "Finalizers must all be removed before a deleted object goes.",
        "generateName" => "GenerateName is the prefix of a name that the server makes if the object has no name.",
        "generation" => "Generation counts the changes of the desired state. Set by the server.",
        "labels" => "Labels are values by name that selectors match.",
        "managedFields" => "ManagedFields says which manager set which fields. Kept by the server.",
        "name" => {
            "Name is unique within the namespace, or within the cluster for kinds without one. It cannot be updated."
        }
        "namespace" => "Namespace is the space in which the name is unique. It cannot be updated.",
        "ownerReferences" => {
            "OwnerReferences are the objects that this one depends on: it is deleted after the last of them."
        }
        "resourceVersion" => "ResourceVersion changes with every write of the object. Opaque to clients.",
        "selfLink" => "Deprecated: the server no longer sets it.",
        "uid" => "UID differs between this object and every other, also one of the same name later. Set by the server.",
        _ => return None,
    })
}
