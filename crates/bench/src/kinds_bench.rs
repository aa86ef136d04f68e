//! Cost of the tables of kinds and types: at the start of a server, when the types of the kinds are read, and when an object
//! is validated.
//!
//! Memory is measured in a separate process that does nothing else, because pages that another benchmark has touched
//! would not count again.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use api::GroupVersionKind;
use kinds::{FeatureGates, Release, RuntimeConfig, ServedResources, types_of};

use crate::Effort;
use crate::table::{BenchRow, BenchTable, Measurement};
use crate::timing::{median, median_time, monotonic_time};

/// Makes this program the child that reads the tables and prints what they cost.
pub(crate) const CHILD_FLAG: &str = "--kinds";

/// Goals for a server.
const START_MAX: Duration = Duration::from_millis(10);
const MEMORY_BYTES_MAX: u64 = 3 << 20;
const VALIDATION_MAX: Duration = Duration::from_micros(20);
/// Number of child processes; odd, so that the median is one of them.
const CHILDREN: usize = 9;

/// Cost measured in one process.
#[derive(Clone, Copy)]
struct KindsCost {
    start: Duration,
    start_bytes: u64,
    types: Duration,
    /// Memory after the start and after reading the types.
    bytes: u64,
}

pub(crate) fn run(effort: Effort, table: &mut BenchTable) -> anyhow::Result<()> {
    let children = if effort == Effort::Quick { 1 } else { CHILDREN };
    let paid = (0..children).map(|_| run_child_process()).collect::<anyhow::Result<Vec<_>>>()?;
    let time = |of: fn(&KindsCost) -> Duration| median(&mut paid.iter().map(of).collect::<Vec<_>>());
    let bytes = |of: fn(&KindsCost) -> u64| {
        let mut all: Vec<u64> = paid.iter().map(of).collect();
        all.sort_unstable();
        all[all.len() / 2]
    };
    let start = time(|paid| paid.start);
    table.push(BenchRow::time("start: gates, flags, what is served", start).with_goal(Measurement::Time(START_MAX)));
    let resident = BenchRow::new("memory after the start", Measurement::Bytes(bytes(|paid| paid.start_bytes)));
    table.push(resident.with_goal(Measurement::Bytes(MEMORY_BYTES_MAX)));
    table.push(
        BenchRow::time("first look at a type: all are read", time(|paid| paid.types))
            .with_goal(Measurement::Time(START_MAX)),
    );
    let resident = BenchRow::new("memory after both", Measurement::Bytes(bytes(|paid| paid.bytes)));
    table.push(resident.with_goal(Measurement::Bytes(MEMORY_BYTES_MAX)));
    let validation = validation_time(effort)?;
    table.push(BenchRow::time("validate a deployment", validation).with_goal(Measurement::Time(VALIDATION_MAX)));
    Ok(())
}

/// Time to validate a typical deployment, whose defaults are set.
fn validation_time(effort: Effort) -> anyhow::Result<Duration> {
    let gates = FeatureGates::new(Release::NEWEST);
    let served = ServedResources::new(&gates, &RuntimeConfig::parse(Release::NEWEST, "")?);
    let deployments = served.resources().iter().find(|resource| resource.kind.plural == "deployments");
    let strategy = deployments.context("there are deployments")?.kind.strategy;
    let kind = GroupVersionKind { group: "apps", version: "v1", kind: "Deployment" };
    let kind = types_of(Release::NEWEST).for_kind(kind).context("there are deployments")?;
    let mut deployment = serde_json::from_str(DEPLOYMENT)?;
    kinds::defaults::apply_defaults(&mut deployment, kind, &gates);
    let errors = kinds::value_validation::validate_create(strategy, &gates, &deployment);
    anyhow::ensure!(errors.is_empty(), "the deployment is valid: {errors:?}");
    Ok(median_time(effort, || kinds::value_validation::validate_create(strategy, &gates, &deployment)))
}

/// A container with what most have.
const DEPLOYMENT: &str = r#"{
    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
    "spec": {
        "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [{
                    "name": "web", "image": "registry.example.com/web:1.2.3",
                    "ports": [{"name": "http", "containerPort": 8080}],
                    "env": [{"name": "MODE", "value": "production"},
                        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
                    "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}},
                    "livenessProbe": {"httpGet": {"path": "/live", "port": "http"}},
                    "volumeMounts": [{"name": "config", "mountPath": "/etc/web"}]
                }],
                "volumes": [{"name": "config", "configMap": {"name": "web"}}]
            }
        }
    }
}"#;

fn run_child_process() -> anyhow::Result<KindsCost> {
    let output = Command::new(std::env::current_exe()?).arg(CHILD_FLAG).output()?;
    let text = String::from_utf8(output.stdout)?;
    let numbers: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [start, start_bytes, types, bytes] = numbers[..] else {
        anyhow::bail!("the child printed {text:?} and {:?}", String::from_utf8_lossy(&output.stderr));
    };
    Ok(KindsCost { start: Duration::from_nanos(start), start_bytes, types: Duration::from_nanos(types), bytes })
}

/// Measures and prints nanoseconds and bytes.
pub(crate) fn run_child() -> anyhow::Result<()> {
    // The first read allocates its own buffers.
    resident_bytes()?;
    let (empty, begin) = (resident_bytes()?, monotonic_time());
    let gates = FeatureGates::parse(Release::NEWEST, "AllAlpha=true,AllBeta=true")?;
    let served_resources = ServedResources::new(&gates, &RuntimeConfig::parse(Release::NEWEST, "api/all=true")?);
    let (start, started) = (monotonic_time() - begin, resident_bytes()?);
    let begin = monotonic_time();
    let pod = GroupVersionKind { group: "", version: "v1", kind: "Pod" };
    let pod = types_of(Release::NEWEST).for_kind(pod).context("there are pods")?;
    let (types, read) = (monotonic_time() - begin, resident_bytes()?);
    std::hint::black_box((served_resources, pod));
    let grown = |now: u64| now.saturating_sub(empty);
    println!("{} {} {} {}", start.as_nanos(), grown(started), types.as_nanos(), grown(read));
    Ok(())
}

fn resident_bytes() -> anyhow::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("/proc/self/status has VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}
