//! The quotas that this server has charged, and the check of one write against them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::admission::quota::{self, Evaluator, LimitedResource, QuotaState, QuotaWrite, ResourceList};
use ::admission::{Operation, Refusal};
use api::json::JsonObject;
use api::{GroupResource, Status};
use bytes::Bytes;
use kinds::FeatureGates;
use object::StoredObject;
use parking_lot::Mutex;
use store::{ComputedValues, Key, KeyState, Revision};

use crate::object_codec;
use crate::resource::Resource;

/// Namespaces whose quotas are kept; those that no request uses are dropped above this.
const NAMESPACES_MAX: usize = 1024;

/// States that are kept of a quota: more than a store computes values for at the same time.
const STATES_MAX: usize = 32;

/// The quotas of all namespaces, as far as this server has charged them.
#[derive(Debug, Default)]
pub(crate) struct QuotaLedger(Mutex<HashMap<String, Arc<NamespaceQuotas>>>);

/// The quotas of a namespace, by key.
#[derive(Debug, Default)]
pub(super) struct NamespaceQuotas(pub(super) Mutex<HashMap<Key, KnownQuota>>);

/// A quota as another writer left it, and as this server charged it since. Not every charge is committed.
#[derive(Debug)]
pub(super) struct KnownQuota {
    /// The revision at which another writer left the quota: this server computed all values since.
    since: Revision,
    /// The state that was used last is last.
    states: VecDeque<KnownState>,
}

#[derive(Clone, Debug)]
struct KnownState {
    value: Bytes,
    quota: Arc<JsonObject>,
    /// By resource.
    usage: HashMap<GroupResource, KnownUsage>,
}

/// What is known of the objects of a resource that a quota covers.
#[derive(Clone, Debug)]
enum KnownUsage {
    /// What they used when they were counted, after the last write of another writer. `None` if the quota does not limit
    /// them.
    Counted(Option<ResourceList>),
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
    /// The known state of a key; it becomes the one that was used last.
    fn state(&mut self, current: &KeyState) -> Option<&mut KnownState> {
        if self.since != current.since {
            return None;
        }
        let index = self.states.iter().rposition(|state| state.value == current.value)?;
        let state = self.states.remove(index)?;
        self.states.push_back(state);
        self.states.back_mut()
    }

    fn add(&mut self, state: KnownState) {
        if self.states.iter().any(|known| known.value == state.value) {
            return;
        }
        if self.states.len() == STATES_MAX {
            self.states.pop_front();
        }
        self.states.push_back(state);
    }

    /// The quota in the cache and what the objects of a resource use of it, if both are known.
    pub(super) fn cached(&self, stored: &StoredObject, resource: &GroupResource) -> Option<QuotaState> {
        let is_cached = |state: &&KnownState| {
            let known = StoredObject::from_storage(&state.value, stored.revision);
            known.is_ok_and(|known| known.body == stored.body)
        };
        self.states.iter().rev().find(is_cached)?.quota_state(resource)
    }
}

impl KnownState {
    fn quota_state(&self, resource: &GroupResource) -> Option<QuotaState> {
        let existing = match self.usage.get(resource)? {
            KnownUsage::Counted(usage) => usage.clone(),
            KnownUsage::Charged => None,
        };
        Some(QuotaState { quota: JsonObject::clone(&self.quota), existing })
    }
}

impl NamespaceQuotas {
    /// Forgets deleted quotas: those whose keys are not among these.
    pub(super) fn forget_except(&self, keys: &[Key]) {
        self.0.lock().retain(|key, _| keys.contains(key));
    }

    /// Records what the objects of a resource use of a quota, as counted in a view that is not older than `current.since`.
    pub(super) fn learn(
        &self,
        key: &Key,
        current: &KeyState,
        quota: JsonObject,
        resource: &GroupResource,
        counted: Option<&ResourceList>,
    ) {
        let mut quotas = self.0.lock();
        let new = || KnownQuota { since: current.since, states: VecDeque::new() };
        let known = quotas.entry(key.clone()).or_insert_with(new);
        if known.state(current).is_none() {
            *known = new();
            known.add(KnownState { value: current.value.clone(), quota: Arc::new(quota), usage: HashMap::new() });
        }
        // A charge that is being committed counts in the status.
        for state in &mut known.states {
            state.usage.entry(resource.clone()).or_insert_with(|| KnownUsage::Counted(counted.cloned()));
        }
    }
}

/// Why a write is not charged.
#[derive(Debug)]
pub(super) enum Uncharged {
    /// Quotas that this server must learn first.
    Unknown(Vec<(Key, KeyState)>),
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

    /// Checks the write against quotas. Returns the charged form of each; `None` where it stays.
    pub(super) fn charge(&self, quotas: &[QuotaState]) -> Result<Vec<Option<JsonObject>>, Refusal> {
        let Some(evaluator) = self.evaluator() else { return Ok(vec![None; quotas.len()]) };
        let write = QuotaWrite {
            evaluator: &evaluator,
            resource: (&self.resource.group, &self.resource.resource),
            subresource: &self.subresource,
            new: &self.new,
            old: self.old.as_ref(),
        };
        quota::check(write, quotas, &self.limited, &self.gates)
    }
}

/// The charges of a write, computed in its transaction.
#[derive(Debug)]
pub(super) struct ComputedCharge {
    pub(super) check: QuotaCheck,
    pub(super) namespace: Arc<NamespaceQuotas>,
    pub(super) keys: Vec<Key>,
    /// Of the last computation.
    pub(super) outcome: Mutex<Option<ChargeOutcome>>,
}

/// What a computation of a charge came to.
#[derive(Debug)]
pub(super) struct ChargeOutcome {
    pub(super) result: Result<(), Uncharged>,
    pub(super) elapsed: Duration,
}

impl ComputedCharge {
    /// Charges the quotas that exist, if this server knows each as it is.
    fn charge(&self, current: &[Option<KeyState>]) -> Result<Vec<Option<Bytes>>, Uncharged> {
        let mut known = self.namespace.0.lock();
        let (mut quotas, mut unknown) = (Vec::new(), Vec::new());
        let existing = || self.keys.iter().zip(current).filter_map(|(key, state)| Some((key, state.as_ref()?)));
        for (key, state) in existing() {
            let found = known.get_mut(key).and_then(|quota| quota.state(state));
            match found.and_then(|found| found.quota_state(&self.check.resource)) {
                Some(quota) => quotas.push(quota),
                None => unknown.push((key.clone(), state.clone())),
            }
        }
        if !unknown.is_empty() {
            return Err(Uncharged::Unknown(unknown));
        }
        let charged = self.check.charge(&quotas).map_err(Uncharged::Refused)?;
        let mut values = vec![None; self.keys.len()];
        for ((key, state), charged) in existing().zip(charged) {
            let Some(charged) = charged else { continue };
            let value = object_codec::encode_for_storage(charged.clone(), &self.check.quotas);
            let value = value.map_err(Uncharged::Failed)?;
            if let Some(quota) = known.get_mut(key)
                && let Some(before) = quota.state(state)
            {
                let mut usage = before.usage.clone();
                usage.insert(self.check.resource.clone(), KnownUsage::Charged);
                quota.add(KnownState { value: value.clone(), quota: Arc::new(charged), usage });
            }
            if let Some(index) = self.keys.iter().position(|other| other == key) {
                values[index] = Some(value);
            }
        }
        Ok(values)
    }
}

impl ComputedValues for ComputedCharge {
    fn keys(&self) -> &[Key] {
        &self.keys
    }

    fn compute(&self, current: &[Option<KeyState>]) -> Option<Vec<Option<Bytes>>> {
        let started = Instant::now();
        let (values, result) = match self.charge(current) {
            Ok(values) => (Some(values), Ok(())),
            Err(uncharged) => (None, Err(uncharged)),
        };
        *self.outcome.lock() = Some(ChargeOutcome { result, elapsed: started.elapsed() });
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ledger_forgets_deleted_quotas() {
        let namespace = NamespaceQuotas::default();
        let resource = GroupResource { group: "".into(), resource: "pods".into() };
        let state = KeyState { value: Bytes::from_static(b"{}"), since: Revision(1) };
        let [kept, deleted] =
            [&b"/registry/resourcequotas/n/kept"[..], b"/registry/resourcequotas/n/deleted"].map(Key::from);
        for key in [&kept, &deleted] {
            namespace.learn(key, &state, JsonObject::new(), &resource, None);
        }
        namespace.forget_except(std::slice::from_ref(&kept));
        assert_eq!(namespace.0.lock().keys().collect::<Vec<_>>(), [&kept]);
    }
}
