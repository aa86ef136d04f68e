//! Sums over stored values: per resource the versions, media types and encryption keys in use.
//!
//! Memory is bounded by the number of resources and forms, not by the number of objects: undecodable keys are named up to
//! [`UNDECODABLE_NAMES_MAX`] per resource, and forms beyond [`FORMS_MAX`] per resource are summed as one.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::encryption::{DecryptError, EncryptionConfig};
use crate::envelope::{EncryptedValue, Envelope, StoredMediaType, UndecodableReason};
use crate::key_layout::{KeyLayout, KeyOwner, ResourceClass};

/// Undecodable keys that are named per resource: enough to act on, and little enough to read.
pub const UNDECODABLE_NAMES_MAX: usize = 20;
/// Forms that are told apart per resource. A resource has a handful of versions and keys; more means foreign data.
pub const FORMS_MAX: usize = 64;
/// Resources that are told apart. Clusters have some hundred; more means that the prefix is not a cluster's.
pub const RESOURCES_MAX: usize = 10_000;
/// The resource under which keys of further resources are summed.
const OTHER_RESOURCES: &str = "(other)";

/// What is stored below a prefix at one revision.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inventory {
    /// Where it was read, as the flags name it.
    pub source: String,
    /// The store's revision at which everything was read; `None` if only the API was read.
    pub revision: Option<u64>,
    /// In the order of keys.
    pub resources: Vec<ResourceInventory>,
    /// Limits of this inventory, one sentence each; empty if everything was seen.
    pub not_known: Vec<String>,
}

/// What is stored of one resource.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceInventory {
    /// The API group; empty for core.
    pub group: String,
    /// The plural, or the first part of keys that belong to no known resource.
    pub resource: String,
    /// Whose resource it is.
    pub class: ResourceClass,
    /// The keys of its objects after the prefix.
    pub key_prefix: String,
    /// The number of objects, undecodable ones included.
    pub objects: u64,
    /// The sum of the lengths of their values.
    pub bytes: u64,
    /// One entry for each combination of version, media type and encryption key, in their order.
    pub forms: Vec<StoredForm>,
    /// Values that no server can read, or whose version cannot be told.
    pub undecodable: Undecodable,
}

/// The objects of a resource that are stored alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredForm {
    /// The encoding version, `apps/v1`; `None` for values that stay encrypted and for bookkeeping.
    pub api_version: Option<String>,
    /// The kind, with the same exceptions.
    pub kind: Option<String>,
    /// The media type; `None` for values that stay encrypted and for bookkeeping.
    pub media_type: Option<&'static str>,
    /// The provider and key; `None` for plain values.
    pub encryption: Option<StoredEncryption>,
    /// The number of objects.
    pub objects: u64,
    /// The sum of the lengths of their values, as stored.
    pub bytes: u64,
    /// The lowest revision at which one of them was last written.
    pub lowest_revision: Option<u64>,
}

/// How a value is encrypted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct StoredEncryption {
    /// `aescbc`, `aesgcm`, `secretbox`, `kms`.
    pub provider: String,
    /// `v1`, `v2`.
    pub scheme: String,
    /// The name of the key or of the KMS plugin.
    pub key: String,
}

/// Values of a resource that cannot be decoded.
#[derive(Debug, Default, Serialize)]
pub struct Undecodable {
    /// The number of all of them.
    pub count: u64,
    /// The first [`UNDECODABLE_NAMES_MAX`], in the order of keys.
    pub keys: Vec<UndecodableKey>,
}

/// One value that cannot be decoded.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct UndecodableKey {
    /// The full storage key.
    pub key: String,
    /// Why it cannot be decoded.
    pub reason: String,
}

/// Builds an [`Inventory`] from keys and values in any order.
#[derive(Debug)]
pub struct InventoryBuilder {
    /// With a slash at its end.
    prefix: String,
    layout: KeyLayout,
    encryption: Option<EncryptionConfig>,
    /// By key prefix.
    resources: BTreeMap<String, ResourceInventory>,
    objects: u64,
    has_unread_encrypted: bool,
    has_kms: bool,
}

/// The envelope of a value, with its encryption removed if the keys allow it.
struct ObservedForm<'v> {
    envelope: Envelope<'v>,
    encryption: Option<EncryptedValue<'v>>,
    /// The value, decrypted if the keys allow it.
    bytes: &'v [u8],
}

impl InventoryBuilder {
    /// Starts an empty inventory of the keys below `prefix`, which may end with a slash.
    pub fn new(prefix: &str, encryption: Option<EncryptionConfig>) -> Self {
        Self {
            prefix: format!("{}/", prefix.trim_end_matches('/')),
            layout: KeyLayout::default(),
            encryption,
            resources: BTreeMap::new(),
            objects: 0,
            has_unread_encrypted: false,
            has_kms: false,
        }
    }

    /// The prefix of all keys, with a slash at its end.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The number of values that were added.
    pub fn objects(&self) -> u64 {
        self.objects
    }

    /// Discards everything that was added.
    pub fn reset(&mut self) {
        self.resources.clear();
        (self.objects, self.has_unread_encrypted, self.has_kms) = (0, false, false);
    }

    /// Adds one value. A key outside the prefix is ignored.
    pub fn add(&mut self, key: &[u8], value: &[u8], revision: u64) {
        self.add_and_inspect(key, value, revision, |_, _, _| {});
    }

    /// Like [`Self::add`], and shows the envelope and the decrypted bytes of an API object to `inspect`.
    pub fn add_and_inspect(
        &mut self,
        key: &[u8],
        value: &[u8],
        revision: u64,
        inspect: impl FnOnce(&KeyOwner<'_>, &Envelope<'_>, &[u8]),
    ) {
        let text = String::from_utf8_lossy(key);
        let Some(below) = text.strip_prefix(&*self.prefix) else { return };
        self.objects += 1;
        let owner = self.layout.owner(below);
        let mut plain = Vec::new();
        let observed = match owner.class {
            ResourceClass::Internal => None,
            ResourceClass::BuiltIn | ResourceClass::Custom | ResourceClass::Served | ResourceClass::Unknown => {
                Some(observe(self.encryption.as_ref(), &owner, key, value, &mut plain))
            }
        };
        if let Some(ObservedForm { envelope, bytes, .. }) = &observed {
            inspect(&owner, envelope, bytes);
        }
        if let Some(ObservedForm { envelope: Envelope::Encrypted(encrypted), .. }) = &observed {
            self.has_kms |= encrypted.provider == "kms";
            self.has_unread_encrypted |= encrypted.provider != "kms";
        }
        let owner = match self.resources.len() >= RESOURCES_MAX && !self.resources.contains_key(owner.key_prefix) {
            true => KeyOwner {
                class: ResourceClass::Unknown,
                group: "",
                resource: OTHER_RESOURCES,
                key_prefix: OTHER_RESOURCES,
                ..owner
            },
            false => owner,
        };
        if !self.resources.contains_key(owner.key_prefix) {
            self.resources.insert(owner.key_prefix.to_owned(), ResourceInventory::new(&owner));
        }
        let Some(resource) = self.resources.get_mut(owner.key_prefix) else { return };
        resource.objects += 1;
        resource.bytes += value.len() as u64;
        let added = AddedValue { key: &text, bytes: value.len() as u64, revision };
        resource.add(observed, &added);
    }

    /// The sums, read at `revision` from `source`.
    pub fn finish(self, source: String, revision: u64) -> Inventory {
        let mut not_known = Vec::new();
        if self.has_unread_encrypted {
            not_known.push(
                "The versions of encrypted values: give the servers' file with --encryption-provider-config."
                    .to_owned(),
            );
        }
        if self.has_kms {
            not_known.push("The versions of values encrypted through KMS: plugins are not called.".to_owned());
        }
        let mut resources: Vec<_> = self.resources.into_values().collect();
        for resource in &mut resources {
            resource.forms.sort_by(|one, other| one.sort_key().cmp(&other.sort_key()));
        }
        Inventory { source, revision: Some(revision), resources, not_known }
    }
}

/// Reads the envelope; `plain` keeps the decrypted value alive.
fn observe<'v>(
    encryption: Option<&EncryptionConfig>,
    owner: &KeyOwner<'_>,
    key: &[u8],
    value: &'v [u8],
    plain: &'v mut Vec<u8>,
) -> ObservedForm<'v> {
    let envelope = Envelope::parse(value);
    let (Envelope::Encrypted(encrypted), Some(config)) = (&envelope, encryption) else {
        return ObservedForm { envelope, encryption: None, bytes: value };
    };
    let encrypted = *encrypted;
    let mut bytes = value;
    let envelope = match config.decrypt(owner.group, owner.resource, &encrypted, key) {
        Ok(decrypted) => {
            *plain = decrypted;
            bytes = plain;
            match Envelope::parse(bytes) {
                // A server would not decrypt twice.
                Envelope::Encrypted(_) => Envelope::Undecodable(UndecodableReason::UnknownEncoding),
                inner @ (Envelope::Object { .. } | Envelope::Undecodable(_)) => inner,
            }
        }
        Err(DecryptError::Kms) => return ObservedForm { envelope, encryption: None, bytes },
        Err(DecryptError::KeyNotConfigured) => Envelope::Undecodable(UndecodableReason::KeyNotConfigured),
        Err(DecryptError::Failed) => Envelope::Undecodable(UndecodableReason::DecryptionFailed),
    };
    ObservedForm { envelope, encryption: Some(encrypted), bytes }
}

/// Version, media type and encryption of one stored value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueForm {
    /// The encoding version; empty for values that stay encrypted.
    pub api_version: String,
    /// The media type; empty for values that stay encrypted.
    pub media_type: &'static str,
    /// `provider:scheme:key`; empty for plain values.
    pub encryption: String,
}

/// The form of one value of a resource. `key` is the full storage key.
pub fn value_form(
    encryption: Option<&EncryptionConfig>,
    group: &str,
    resource: &str,
    key: &[u8],
    value: &[u8],
) -> Result<ValueForm, UndecodableReason> {
    let owner = KeyOwner { class: ResourceClass::Unknown, group, resource, key_prefix: "", name: "" };
    let mut plain = Vec::new();
    let observed = observe(encryption, &owner, key, value, &mut plain);
    let text = |value: EncryptedValue<'_>| format!("{}:{}:{}", value.provider, value.scheme, value.key);
    match observed.envelope {
        Envelope::Object { media_type, api_version, .. } => Ok(ValueForm {
            api_version: api_version.into_owned(),
            media_type: media_type.as_str(),
            encryption: observed.encryption.map(text).unwrap_or_default(),
        }),
        Envelope::Encrypted(value) => {
            Ok(ValueForm { api_version: String::new(), media_type: "", encryption: text(value) })
        }
        Envelope::Undecodable(reason) => Err(reason),
    }
}

struct AddedValue<'k> {
    key: &'k str,
    bytes: u64,
    revision: u64,
}

impl ResourceInventory {
    /// A resource of which only the number of served objects is known.
    pub fn counted(group: &str, resource: &str, objects: u64) -> Self {
        let class = ResourceClass::Served;
        let owner = KeyOwner { class, group, resource, key_prefix: "", name: "" };
        let mut counted = Self::new(&owner);
        counted.objects = objects;
        let form = counted.form("", "", None, None);
        form.objects = objects;
        counted
    }

    fn new(owner: &KeyOwner<'_>) -> Self {
        Self {
            group: owner.group.to_owned(),
            resource: owner.resource.to_owned(),
            class: owner.class,
            key_prefix: owner.key_prefix.to_owned(),
            objects: 0,
            bytes: 0,
            forms: Vec::new(),
            undecodable: Undecodable::default(),
        }
    }

    fn add(&mut self, observed: Option<ObservedForm<'_>>, added: &AddedValue<'_>) {
        let Some(ObservedForm { envelope, encryption, .. }) = observed else {
            return self.form("", "", None, None).add(added);
        };
        match envelope {
            Envelope::Object { media_type, api_version, kind } => {
                self.form(&api_version, &kind, Some(media_type), encryption).add(added);
            }
            Envelope::Encrypted(encrypted) => self.form("", "", None, Some(encrypted)).add(added),
            Envelope::Undecodable(reason) => {
                self.undecodable.count += 1;
                if self.undecodable.keys.len() < UNDECODABLE_NAMES_MAX {
                    let reason = match encryption {
                        Some(EncryptedValue { provider, key, .. }) => format!("{reason} ({provider}, key {key})"),
                        None => reason.to_string(),
                    };
                    self.undecodable.keys.push(UndecodableKey { key: added.key.to_owned(), reason });
                }
            }
        }
    }

    /// The form with these parts, added if it is new; the last one if there are [`FORMS_MAX`].
    fn form(
        &mut self,
        api_version: &str,
        kind: &str,
        media_type: Option<StoredMediaType>,
        encryption: Option<EncryptedValue<'_>>,
    ) -> &mut StoredForm {
        let media_type = media_type.map(StoredMediaType::as_str);
        let encrypted_alike = |form: &StoredForm| match (&form.encryption, &encryption) {
            (Some(stored), Some(value)) => {
                (&*stored.provider, &*stored.scheme, &*stored.key) == (value.provider, value.scheme, value.key)
            }
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let is_same = |form: &StoredForm| {
            form.api_version.as_deref().unwrap_or_default() == api_version
                && form.kind.as_deref().unwrap_or_default() == kind
                && form.media_type == media_type
                && encrypted_alike(form)
        };
        let index = self.forms.iter().position(is_same).unwrap_or_else(|| {
            if self.forms.len() < FORMS_MAX {
                let named = |name: &str| (!name.is_empty()).then(|| name.to_owned());
                self.forms.push(StoredForm {
                    api_version: named(api_version),
                    kind: named(kind),
                    media_type,
                    encryption: encryption.map(StoredEncryption::from),
                    objects: 0,
                    bytes: 0,
                    lowest_revision: None,
                });
            }
            self.forms.len() - 1
        });
        &mut self.forms[index]
    }
}

impl StoredForm {
    fn add(&mut self, added: &AddedValue<'_>) {
        self.objects += 1;
        self.bytes += added.bytes;
        self.lowest_revision = Some(self.lowest_revision.map_or(added.revision, |lowest| lowest.min(added.revision)));
    }

    fn sort_key(&self) -> impl Ord + '_ {
        (&self.api_version, &self.kind, self.media_type, &self.encryption)
    }
}

impl From<EncryptedValue<'_>> for StoredEncryption {
    fn from(value: EncryptedValue<'_>) -> Self {
        let EncryptedValue { provider, scheme, key, .. } = value;
        Self { provider: provider.to_owned(), scheme: scheme.to_owned(), key: key.to_owned() }
    }
}

#[cfg(test)]
mod tests;
