//! IP families of a service: the defaults that depend on the ranges of the server.

use std::net::IpAddr;

use api::FieldError;
use api::json::JsonObject;
use kinds::FeatureGates;
use serde_json::{Value, json};

/// An IP family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpFamily {
    /// `IPv4`.
    V4,
    /// `IPv6`.
    V6,
}

impl IpFamily {
    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The name in `ipFamilies` and in labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }
}

/// The families of a server's ranges.
#[derive(Clone, Copy, Debug)]
pub struct ClusterFamilies {
    /// That of the first range.
    pub primary: IpFamily,
    /// Whether there is a second range, of the other family.
    pub is_dual: bool,
}

impl ClusterFamilies {
    fn has(self, family: &str) -> bool {
        family == self.primary.as_str() || (self.is_dual && family == self.primary.other().as_str())
    }
}

pub(super) fn texts<'a>(spec: &'a JsonObject, name: &str) -> Vec<&'a str> {
    let items = spec.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| item.as_str().unwrap_or_default()).collect()
}

pub(super) fn text<'a>(spec: &'a JsonObject, name: &str) -> &'a str {
    spec.get(name).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn is_headless(spec: &JsonObject) -> bool {
    texts(spec, "clusterIPs").first() == Some(&"None")
}

fn has_selector(spec: &JsonObject) -> bool {
    spec.get("selector").and_then(Value::as_object).is_some_and(|selector| !selector.is_empty())
}

/// Completes a stored spec that was written before services had families.
pub(super) fn default_on_read(cluster: ClusterFamilies, spec: &mut JsonObject) {
    if texts(spec, "clusterIPs").is_empty() && !text(spec, "clusterIP").is_empty() {
        spec.insert("clusterIPs".to_owned(), json!([text(spec, "clusterIP")]));
    }
    if text(spec, "type") == "ExternalName" || !texts(spec, "ipFamilies").is_empty() {
        return;
    }
    let (families, policy) = if is_headless(spec) {
        match has_selector(spec) {
            false => (vec![cluster.primary.as_str(), cluster.primary.other().as_str()], "RequireDualStack"),
            true => (vec![cluster.primary.as_str()], "SingleStack"),
        }
    } else {
        let family = |address: &&str| if address.contains(':') { "IPv6" } else { "IPv4" };
        let families: Vec<_> = texts(spec, "clusterIPs").iter().map(family).collect();
        let policy = if families.len() == 2 { "RequireDualStack" } else { "SingleStack" };
        (families, policy)
    };
    if !families.is_empty() {
        spec.insert("ipFamilies".to_owned(), json!(families));
        spec.insert("ipFamilyPolicy".to_owned(), policy.into());
    }
}

/// True if an update leaves a service with `PreferDualStack` as it is: it gains or loses no family because the server
/// has more or fewer.
pub(super) fn keeps_preferred_families(old: &JsonObject, new: &JsonObject) -> bool {
    text(old, "type") == text(new, "type")
        && matches!(text(new, "type"), "ClusterIP" | "NodePort" | "LoadBalancer")
        && text(new, "ipFamilyPolicy") == "PreferDualStack"
        && matches!(text(old, "ipFamilyPolicy"), "" | "PreferDualStack")
        && texts(old, "clusterIPs") == texts(new, "clusterIPs")
        && texts(old, "ipFamilies") == texts(new, "ipFamilies")
}

/// Sets `ipFamilyPolicy` and `ipFamilies` of a spec, or says what in it does not fit the server.
pub(super) fn set_ip_families(
    cluster: ClusterFamilies,
    gates: &FeatureGates,
    old: Option<&JsonObject>,
    spec: &mut JsonObject,
) -> Result<(), Vec<FieldError>> {
    if text(spec, "type") == "ExternalName" || old.is_some_and(|old| keeps_preferred_families(old, spec)) {
        return Ok(());
    }
    let is_loose = text(spec, "clusterIP") == "None" && !has_selector(spec);
    if text(spec, "ipFamilyPolicy").is_empty() {
        let policy = match old.map(|old| text(old, "ipFamilyPolicy")) {
            Some(policy) if !policy.is_empty() => policy,
            _ if is_loose => "RequireDualStack",
            _ => "SingleStack",
        };
        spec.insert("ipFamilyPolicy".to_owned(), policy.into());
    }
    let invalid = kinds::validate_service_addresses(gates, spec);
    if !invalid.is_empty() {
        return Err(invalid);
    }
    let policy = text(spec, "ipFamilyPolicy").to_owned();
    let is_single = policy == "SingleStack";
    let wrong_policy = |detail: &str| FieldError::invalid("spec.ipFamilyPolicy", policy.as_str(), detail);
    let mut errors = Vec::new();
    for (list, released) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
        let Some(old) = old else { continue };
        let (before, now) = (texts(old, list), texts(spec, list));
        if is_single && before == now && now.len() > 1 {
            let first = json!([now[0]]);
            spec.insert(list.to_owned(), first);
        } else if !is_single && !now.is_empty() && now.len() < before.len() {
            errors.push(wrong_policy(&format!("must be 'SingleStack' to release the secondary {released}")));
        }
    }
    for (list, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
        if is_single && texts(spec, list).len() == 2 {
            let detail = format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            errors.push(wrong_policy(&detail));
        }
    }
    errors.extend(infer_families(cluster, spec));
    if !errors.is_empty() {
        return Err(errors);
    }
    complete_families(cluster, spec, is_loose, &policy)
}

/// Sets the families of addresses that the spec names.
fn infer_families(cluster: ClusterFamilies, spec: &mut JsonObject) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let addresses: Vec<String> = texts(spec, "clusterIPs").into_iter().map(str::to_owned).collect();
    let mut families: Vec<String> = texts(spec, "ipFamilies").into_iter().map(str::to_owned).collect();
    for (index, address) in addresses.iter().enumerate().take_while(|(_, address)| *address != "None") {
        if index < families.len() {
            continue;
        }
        let family = if address.contains(':') { "IPv6" } else { "IPv4" };
        if cluster.has(family) {
            families.push(family.to_owned());
        } else {
            let detail = format!("{family} is not configured on this cluster");
            errors.push(FieldError::invalid(format!("spec.clusterIPs[{index}]"), json!(addresses), detail));
        }
    }
    if !families.is_empty() {
        spec.insert("ipFamilies".to_owned(), json!(families));
    }
    errors
}

fn complete_families(
    cluster: ClusterFamilies,
    spec: &mut JsonObject,
    is_loose: bool,
    policy: &str,
) -> Result<(), Vec<FieldError>> {
    let mut families: Vec<String> = texts(spec, "ipFamilies").into_iter().map(str::to_owned).collect();
    if !is_loose {
        let mut errors = Vec::new();
        if policy == "RequireDualStack" && !cluster.is_dual {
            let detail = "this cluster is not configured for dual-stack services";
            errors.push(FieldError::invalid("spec.ipFamilyPolicy", policy, detail));
        }
        for (index, family) in families.iter().enumerate().filter(|(_, family)| !cluster.has(family)) {
            let path = format!("spec.ipFamilies[{index}]");
            errors.push(FieldError::invalid(path, family.as_str(), "not configured on this cluster"));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
    }
    if families.is_empty() {
        families.push(cluster.primary.as_str().to_owned());
    }
    // A headless service without a selector may have both families on any server.
    if policy != "SingleStack" && families.len() == 1 && (is_loose || cluster.is_dual) {
        families.push(if families[0] == "IPv4" { "IPv6" } else { "IPv4" }.to_owned());
    }
    spec.insert("ipFamilies".to_owned(), json!(families));
    Ok(())
}
