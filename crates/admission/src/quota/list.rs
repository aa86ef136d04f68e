//! Amounts by the name of a resource.

use std::collections::BTreeMap;

use api::json::JsonObject;
use serde_json::Value;

use crate::quantity::Amount;

/// Amounts of resources, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceList(pub(super) BTreeMap<String, Amount>);

impl ResourceList {
    /// Reads a list such as `spec.hard`; values that are no quantities are skipped.
    pub fn read(list: Option<&JsonObject>) -> Self {
        let amount = |(name, value): (&String, &Value)| Some((name.clone(), Amount::read(value)?));
        Self(list.into_iter().flatten().filter_map(amount).collect())
    }

    /// The JSON of the list.
    pub fn to_value(&self) -> Value {
        Value::Object(self.0.iter().map(|(name, amount)| (name.clone(), amount.to_string().into())).collect())
    }

    /// In ascending order.
    pub fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    /// Adds each amount of another list.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            match self.0.get_mut(name) {
                Some(value) => value.add(amount),
                None => self.set(name, amount.clone()),
            }
        }
    }

    /// Raises each amount to at least that of another list.
    pub fn raise(&mut self, floor: &Self) {
        for (name, amount) in &floor.0 {
            if self.0.get(name).is_none_or(|value| amount.billionths() > value.billionths()) {
                self.set(name, amount.clone());
            }
        }
    }

    pub(super) fn zeros(names: &[String]) -> Self {
        Self(names.iter().map(|name| (name.clone(), Amount::of(0))).collect())
    }

    pub(super) fn set(&mut self, name: &str, amount: Amount) {
        self.0.insert(name.to_owned(), amount);
    }

    pub(super) fn replace(&mut self, other: &Self) {
        self.0.extend(other.0.iter().map(|(name, amount)| (name.clone(), amount.clone())));
    }

    pub(super) fn retain(&mut self, names: &[String]) {
        self.0.retain(|name, _| names.contains(name));
    }

    pub(super) fn masked(&self, names: &[String]) -> Self {
        let mut masked = self.clone();
        masked.retain(names);
        masked
    }

    /// The growth from another list; what shrinks is left out, and so is what stays.
    pub(super) fn growth_from(&self, old: &Self) -> Self {
        let growth = self.0.iter().filter_map(|(name, amount)| {
            let mut growth = amount.clone();
            if let Some(old) = old.0.get(name) {
                growth.subtract(old);
            }
            (growth.billionths() > 0).then(|| (name.clone(), growth))
        });
        Self(growth.collect())
    }

    pub(super) fn without_zeros(&self) -> Self {
        let kept = self.0.iter().filter(|(_, amount)| amount.billionths() != 0);
        Self(kept.map(|(name, amount)| (name.clone(), amount.clone())).collect())
    }

    /// The names whose amount is above that of `limits`, which has all of them that count.
    pub(super) fn exceeding(&self, limits: &Self) -> Vec<String> {
        let is_above = |(name, amount): &(&String, &Amount)| {
            limits.0.get(*name).is_some_and(|limit| amount.billionths() > limit.billionths())
        };
        self.0.iter().filter(is_above).map(|(name, _)| name.clone()).collect()
    }

    /// The amount of a resource; `None` if the list lacks it.
    pub(crate) fn amount(&self, name: &str) -> Option<&Amount> {
        self.0.get(name)
    }

    pub(crate) fn is_equal(&self, other: &Self) -> bool {
        let same = |(name, amount): (&String, &Amount)| {
            other.0.get(name).is_some_and(|value| value.billionths() == amount.billionths())
        };
        self.0.len() == other.0.len() && self.0.iter().all(same)
    }
}

impl std::fmt::Display for ResourceList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, (name, amount)) in self.0.iter().enumerate() {
            write!(f, "{}{name}={amount}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}
