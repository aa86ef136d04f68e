//! How the work of validation grows.

use serde_json::{Value, json};

use crate::validation::field::PATHS_RECORDED;
use crate::{FeatureGates, Release, value_validation};

#[test]
fn work_grows_with_the_length_of_lists() {
    const ITEMS: usize = 300;
    let list = |item: &dyn Fn(usize) -> Value| (0..ITEMS).map(item).collect::<Value>();
    let container = json!({"name": "c", "image": "i", "imagePullPolicy": "Always", "terminationMessagePolicy": "File",
        "volumeMounts": list(&|at| json!({"name": format!("m{at}"), "mountPath": format!("/m{at}")})),
        "volumeDevices": list(&|at| json!({"name": format!("d{at}"), "devicePath": format!("/d{at}")}))});
    let spread = |at| json!({"maxSkew": 1, "topologyKey": format!("k{at}"), "whenUnsatisfiable": "DoNotSchedule"});
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [container], "restartPolicy": "Always",
        "dnsPolicy": "Default", "terminationGracePeriodSeconds": 30, "topologySpreadConstraints": list(&spread)}});
    let gates = FeatureGates::new(Release::NEWEST);
    PATHS_RECORDED.set(0);
    value_validation::validate_create(&crate::pod::STRATEGY, &gates, pod.as_object().expect("an object"));
    let recorded = PATHS_RECORDED.get();
    assert!((ITEMS..200 * ITEMS).contains(&recorded), "{recorded} paths for {ITEMS} items of each list");
}
