//! The versions of one resource that this server publishes.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::GroupResource;
use api::objects::ServerStorageVersion;

use crate::names::storage_version_name;

/// A resource with the versions in which this server encodes, decodes and serves it, written as in `apiVersion`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    resource: GroupResource,
    encoding_version: String,
    decodable_versions: Vec<String>,
    served_versions: Vec<String>,
}

/// All registrations of a server, by StorageVersion name.
pub type Registrations = BTreeMap<Arc<str>, Arc<Registration>>;

/// Versions that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRegistration {
    /// The encoding version is not decodable.
    #[error("{resource} would be stored as {version}, which is not among the versions that can be read")]
    EncodingNotDecodable {
        /// The registered resource.
        resource: GroupResource,
        /// The encoding version.
        version: String,
    },
    /// A served version is not decodable.
    #[error("{resource} would be served as {version}, which is not among the versions that can be read")]
    ServedNotDecodable {
        /// The registered resource.
        resource: GroupResource,
        /// The served version.
        version: String,
    },
}

impl Registration {
    /// Checks that the encoding version and all served versions are decodable (KEP-2339, "Resource Version API").
    pub fn new(
        resource: GroupResource,
        encoding: String,
        decodable: Vec<String>,
        served: Vec<String>,
    ) -> Result<Self, InvalidRegistration> {
        if !decodable.contains(&encoding) {
            return Err(InvalidRegistration::EncodingNotDecodable { resource, version: encoding });
        }
        if let Some(version) = served.iter().find(|version| !decodable.contains(version)) {
            return Err(InvalidRegistration::ServedNotDecodable { resource, version: version.clone() });
        }
        Ok(Self { resource, encoding_version: encoding, decodable_versions: decodable, served_versions: served })
    }

    /// The registered resource.
    pub fn resource(&self) -> GroupResource<&str> {
        self.resource.borrowed()
    }

    /// The name of the resource's StorageVersion.
    pub fn name(&self) -> Arc<str> {
        storage_version_name(self.resource()).into()
    }

    /// The entry of `server` in the StorageVersion.
    pub fn entry(&self, server: &str) -> ServerStorageVersion {
        ServerStorageVersion {
            api_server_id: server.to_owned(),
            encoding_version: self.encoding_version.clone(),
            decodable_versions: self.decodable_versions.clone(),
            served_versions: self.served_versions.clone(),
            ..ServerStorageVersion::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(encoding: &str, decodable: &str, served: &str) -> Result<Registration, String> {
        let all = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        let resource = GroupResource { group: "apps", resource: "deployments" }.owned();
        Registration::new(resource, encoding.to_owned(), all(decodable), all(served)).map_err(|error| error.to_string())
    }

    #[test]
    fn registration_rejects_undecodable_versions() {
        assert_eq!(&*register("apps/v1", "apps/v1 apps/v1beta1", "apps/v1").unwrap().name(), "apps.deployments");
        assert_eq!(
            register("apps/v2", "apps/v1", "apps/v1").unwrap_err(),
            "deployments.apps would be stored as apps/v2, which is not among the versions that can be read"
        );
        assert_eq!(
            register("apps/v1", "apps/v1", "apps/v1 apps/v2").unwrap_err(),
            "deployments.apps would be served as apps/v2, which is not among the versions that can be read"
        );
    }
}
