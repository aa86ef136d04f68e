//! The quotas that this server knows, with what it has charged, and the check of one write against them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::admission::quota::{self, Evaluator, LimitedResource, QuotaState, QuotaWrite, ResourceList};
use ::admission::{Operation, Refusal};
use api::json::JsonObject;
use api::{GroupResource, Status};
use bytes::Bytes;
use kinds::FeatureGates;
use parking_lot::Mutex;
use store::{ComputedOps, Key, Op, Revision, StoreEntry};

use crate::object_codec;
use crate::resource::Resource;

/// Namespaces whose quotas are kept; those that no request uses are dropped above this.
const NAMESPACES_MAX: usize = 1024;

/// The quotas of all namespaces, as far as this server has charged them.
#[derive(Debug, Default)]
pub(crate) struct QuotaLedger(Mutex<HashMap<String, Arc<NamespaceQuotas>>>);

/// The quotas of a namespace.
#[derive(Debug, Default)]
pub(super) struct NamespaceQuotas {
    /// Held from the check of a write to its commit, on a store that computes no operations.
    pub(super) turn: Arc<tokio::sync::Mutex<()>>,
    pub(super) known: Mutex<KnownQuotas>,
}

/// By key.
#[derive(Debug, Default)]
pub(super) struct KnownQuotas(pub(super) HashMap<Key, KnownQuota>);

/// A quota as this server read it in its cache, or charged it since.
#[derive(Debug)]
pub(super) struct KnownQuota {
    pub(super) quota: JsonObject,
    pub(super) revision: Revision,
    /// The value as this server charged it. A commit that failed leaves one that was never stored.
    charged: Option<Bytes>,
    /// The revision at which another writer left the quota: this server wrote all versions since.
    pub(super) since: Revision,
    usage: HashMap<GroupResource, KnownUsage>,
}

/// What is known of the objects of a resource that a quota covers.
#[derive(Debug)]
enum KnownUsage {
    /// What they used when the last check counted them, after the last write of another writer.
    Counted(ResourceList),
    /// The status includes them.
    Charged,
}

impl QuotaLedger {
    pub(super) fn of(&self, namespace: &str) -> Arc<NamespaceQuotas> {
        let mut namespaces = self.0.lock();
        if namespaces.len() >= NAMESPACES_MAX {
            namespaces.retain(|_, quotas| Arc::strong_count(quotas) > 1);
        }
        namespaces.entry(namespace.to_owned()).or_default().clone()
    }
}

impl KnownQuota {
    /// A quota as another writer left it.
    pub(super) fn of_other_writer(quota: JsonObject, revision: Revision) -> Self {
        Self { quota, revision, charged: None, since: revision, usage: HashMap::new() }
    }

    /// True if the status includes the objects of a resource, so that they need not be counted.
    pub(super) fn is_charged(&self, resource: &GroupResource) -> bool {
        matches!(self.usage.get(resource), Some(KnownUsage::Charged))
    }

    pub(super) fn set_counted(&mut self, resource: &GroupResource, usage: ResourceList) {
        if !self.is_charged(resource) {
            self.usage.insert(resource.clone(), KnownUsage::Counted(usage));
        }
    }

    fn is_stored_as(&self, entry: &StoreEntry) -> bool {
        self.revision == entry.revision && self.charged.as_ref().is_none_or(|charged| *charged == entry.value)
    }
}

/// A quota with the usage after a write.
#[derive(Clone, Debug)]
pub(super) struct Charge {
    pub(super) key: Key,
    /// The version that the charge was computed on.
    pub(super) expected_revision: Revision,
    quota: JsonObject,
    pub(super) value: Bytes,
}

impl KnownQuotas {
    /// Records charges that are committed at a revision.
    pub(super) fn record(&mut self, charges: &[Charge], resource: &GroupResource, revision: Revision) {
        for Charge { key, quota, value, .. } in charges {
            if let Some(known) = self.0.get_mut(key) {
                known.quota.clone_from(quota);
                known.charged = Some(value.clone());
                known.revision = revision;
                known.usage.insert(resource.clone(), KnownUsage::Charged);
            }
        }
    }
}

/// Why a write is not charged.
#[derive(Debug)]
pub(super) enum Uncharged {
    /// The cache must reach the revision of a quota first.
    Behind(Revision),
    Refused(Refusal),
    Failed(Status),
}

/// A write that quotas may cover, decided but for them.
#[derive(Clone, Debug)]
pub(super) struct QuotaCheck {
    pub(super) operation: Operation,
    pub(super) resource: GroupResource,
    pub(super) subresource: String,
    pub(super) new: JsonObject,
    pub(super) old: Option<JsonObject>,
    pub(super) gates: FeatureGates,
    pub(super) limited: Vec<LimitedResource>,
    /// The resource of quotas.
    pub(super) quotas: Arc<Resource>,
}

impl QuotaCheck {
    pub(super) fn evaluator(&self) -> Option<Evaluator<'_>> {
        Evaluator::of(&self.resource.group, &self.resource.resource, &self.gates)
    }

    /// Checks the write against quotas, which must be known. Returns the charged ones.
    pub(super) fn charge<'k>(
        &self,
        keys: impl Iterator<Item = &'k Key>,
        known: &KnownQuotas,
    ) -> Result<Vec<Charge>, Uncharged> {
        let Some(evaluator) = self.evaluator() else { return Ok(Vec::new()) };
        let (mut found, mut states) = (Vec::new(), Vec::new());
        for key in keys {
            let Some(known) = known.0.get(key) else { return Err(Uncharged::Behind(Revision(0))) };
            let existing = match known.usage.get(&self.resource) {
                Some(KnownUsage::Counted(usage)) => Some(usage.clone()),
                Some(KnownUsage::Charged) => None,
                None if evaluator.matching(&quota::limits(&known.quota)).is_empty() => None,
                None => return Err(Uncharged::Behind(known.since)),
            };
            states.push(QuotaState { quota: known.quota.clone(), existing });
            found.push((key, known.revision));
        }
        let write = QuotaWrite {
            evaluator: &evaluator,
            resource: (&self.resource.group, &self.resource.resource),
            subresource: &self.subresource,
            new: &self.new,
            old: self.old.as_ref(),
        };
        let charged = quota::check(write, &states, &self.limited, &self.gates).map_err(Uncharged::Refused)?;
        let mut charges = Vec::new();
        for ((key, expected_revision), quota) in found.into_iter().zip(charged) {
            let Some(quota) = quota else { continue };
            let value = object_codec::encode_for_storage(quota.clone(), &self.quotas).map_err(Uncharged::Failed)?;
            charges.push(Charge { key: key.clone(), expected_revision, quota, value });
        }
        Ok(charges)
    }
}

/// The charges of a write, computed in its transaction.
#[derive(Debug)]
pub(super) struct ComputedCharge {
    pub(super) check: QuotaCheck,
    pub(super) namespace: Arc<NamespaceQuotas>,
    pub(super) keys: Vec<Key>,
    pub(super) outcome: Mutex<Option<ChargeOutcome>>,
}

/// What the last computation of a charge came to.
#[derive(Debug)]
pub(super) struct ChargeOutcome {
    pub(super) result: Result<(), Uncharged>,
    pub(super) elapsed: Duration,
}

impl ComputedCharge {
    /// Charges the quotas that exist, if each is as this server knows it.
    fn charge(&self, current: &[Option<StoreEntry>], revision: Revision) -> Result<Vec<Op>, Uncharged> {
        let mut known = self.namespace.known.lock();
        let (mut exist, mut behind) = (Vec::new(), None);
        for (key, entry) in self.keys.iter().zip(current) {
            let is_known = match (known.0.get(key), entry) {
                (Some(known), Some(entry)) => known.is_stored_as(entry),
                (_, None) | (None, Some(_)) => false,
            };
            if is_known {
                exist.push(key);
                continue;
            }
            known.0.remove(key);
            behind = behind.max(entry.as_ref().map(|entry| entry.revision));
        }
        if let Some(revision) = behind {
            return Err(Uncharged::Behind(revision));
        }
        let charges = self.check.charge(exist.into_iter(), &known)?;
        known.record(&charges, &self.check.resource, revision);
        Ok(charges.into_iter().map(|charge| Op::Put { key: charge.key, value: charge.value, ttl: None }).collect())
    }
}

impl ComputedOps for ComputedCharge {
    fn keys(&self) -> &[Key] {
        &self.keys
    }

    fn compute(&self, current: &[Option<StoreEntry>], revision: Revision) -> Option<Vec<Op>> {
        let started = Instant::now();
        let (ops, result) = match self.charge(current, revision) {
            Ok(ops) => (Some(ops), Ok(())),
            Err(uncharged) => (None, Err(uncharged)),
        };
        *self.outcome.lock() = Some(ChargeOutcome { result, elapsed: started.elapsed() });
        ops
    }
}
