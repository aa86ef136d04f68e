//! Evidence about writers from API objects: identity leases, a StorageVersion and the definition of a custom resource.

use std::collections::BTreeMap;
use std::time::Duration;

use api::objects::{Lease, StorageVersion};
use jiff::Timestamp;

use super::{Writer, WriterEvidence};

/// The label of a lease with the hostname of its server.
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
/// How much later than its own end a lease is taken for expired: clocks differ, and a server with an expired lease may
/// still finish a request.
const EXPIRY_GRACE: Duration = Duration::from_secs(60);

/// What of a CustomResourceDefinition decides how its objects are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionState {
    /// Changes if the definition is deleted and created again.
    pub uid: String,
    /// Changes with every change of the specification.
    pub generation: i64,
    /// The resourceVersion, on which a change of `storedVersions` depends.
    pub resource_version: String,
    /// The storage version with its group, `example.com/v1`.
    pub storage_version: String,
    /// `status.storedVersions`.
    pub stored_versions: Vec<String>,
}

/// Who writes a resource, as the servers report themselves. A server with a lease and without an entry has no encoding
/// version; a server with an entry counts as a writer until the entry is removed.
pub fn reported_writers(
    storage_version: Option<&StorageVersion>,
    leases: &[Lease],
    definition: Option<&DefinitionState>,
    now: Timestamp,
) -> WriterEvidence {
    let entries = storage_version.map(|object| &object.status.storage_versions[..]).unwrap_or_default();
    let mut writers: BTreeMap<&str, Writer> = BTreeMap::new();
    for lease in leases.iter().filter(|lease| !is_expired(lease, now)) {
        let server = &*lease.metadata.name;
        let hostname = lease.metadata.labels.get(HOSTNAME_LABEL).cloned().unwrap_or_default();
        writers.insert(server, Writer { server: server.to_owned(), hostname, encoding_version: None });
    }
    for entry in entries {
        let server = &*entry.api_server_id;
        let writer = writers.entry(server).or_insert_with(|| Writer {
            server: server.to_owned(),
            hostname: String::new(),
            encoding_version: None,
        });
        writer.encoding_version = Some(entry.encoding_version.clone());
    }
    let marker = format!(
        "{}/{}",
        storage_version.map(|object| &*object.metadata.resource_version).unwrap_or_default(),
        definition.map(|definition| format!("{}/{}", definition.uid, definition.generation)).unwrap_or_default()
    );
    WriterEvidence {
        writers: writers.into_values().collect(),
        defined_version: definition.map(|definition| definition.storage_version.clone()),
        marker,
    }
}

/// A lease without times does not expire.
fn is_expired(lease: &Lease, now: Timestamp) -> bool {
    let (Some(renewed), Some(seconds)) = (lease.spec.renew_time, lease.spec.lease_duration_seconds) else {
        return false;
    };
    let lifetime = Duration::from_secs(u64::try_from(seconds).unwrap_or_default()) + EXPIRY_GRACE;
    now.duration_since(renewed.timestamp())
        > jiff::SignedDuration::try_from(lifetime).unwrap_or(jiff::SignedDuration::MAX)
}

#[cfg(test)]
mod tests {
    use api::objects::ServerStorageVersion;
    use api::time::MicroTime;
    use expect_test::expect;

    use super::*;

    fn lease(name: &str, renewed: &str) -> Lease {
        let mut lease = Lease::default();
        lease.metadata.name = name.to_owned();
        lease.metadata.labels.insert(HOSTNAME_LABEL.to_owned(), format!("host-{name}"));
        lease.spec.renew_time = Some(MicroTime::from(renewed.parse::<Timestamp>().unwrap()));
        lease.spec.lease_duration_seconds = Some(3600);
        lease
    }

    fn storage_version(entries: &[(&str, &str)]) -> StorageVersion {
        let mut object = StorageVersion::default();
        object.metadata.resource_version = "7".to_owned();
        object.status.storage_versions = entries
            .iter()
            .map(|(server, version)| ServerStorageVersion {
                api_server_id: (*server).to_owned(),
                encoding_version: (*version).to_owned(),
                ..ServerStorageVersion::default()
            })
            .collect();
        object
    }

    #[test]
    fn writers_are_lease_holders_and_servers_with_an_entry() {
        let leases = [
            lease("a", "2026-11-15T12:00:00Z"),
            lease("b", "2026-11-15T12:00:00Z"),
            lease("dead", "2026-11-15T10:00:00Z"),
        ];
        let object = storage_version(&[("a", "g/v1"), ("c", "g/v1beta1")]);
        let now = "2026-11-15T12:00:10Z".parse().unwrap();
        let definition = DefinitionState {
            uid: "u".to_owned(),
            generation: 3,
            resource_version: "9".to_owned(),
            storage_version: "g/v1".to_owned(),
            stored_versions: Vec::new(),
        };
        let evidence = reported_writers(Some(&object), &leases, Some(&definition), now);
        let shown: Vec<String> =
            evidence.writers.iter().map(|writer| format!("{writer} {:?}", writer.encoding_version)).collect();
        expect![[r#"
            host-a (a) Some("g/v1")
            host-b (b) None
            c Some("g/v1beta1")
            marker 7/u/3"#]]
        .assert_eq(&format!("{}\nmarker {}", shown.join("\n"), evidence.marker));
        let silent = reported_writers(None, &leases[..1], None, now);
        assert_eq!(silent.judge().unwrap_err().to_string(), "encoding version unknown of host-a (a)");
    }
}
