//! Server-side apply and managed fields.

pub(crate) mod corpus;
pub(crate) mod deviations;
mod endpoints;
mod kubectl;
pub(crate) mod recording;
pub(crate) mod sequence;

use cluster_tests::Client;
use futures_util::StreamExt as _;

use self::corpus::{WIDGETS_CRD, corpus};
use self::recording::{RecordedStep, Recording};
use self::sequence::{SequenceObject, digest, generate};
use crate::custom_resource::CRD_PATH;
use crate::{block_on, start_on_sqlite};

/// The release whose results are recorded.
const RECORDED_RELEASE: &str = "--emulated-version=1.36";
const CONCURRENT_SEQUENCES: usize = 8;

/// Creates the definition of widgets and waits until they are served.
pub(crate) async fn create_widgets(client: &Client) {
    let created = client.create(CRD_PATH, &serde_json::from_str(WIDGETS_CRD).unwrap()).await;
    assert_eq!(created.status, 201, "{}", created.summary());
    let widgets = "/apis/apply.example.com/v1/namespaces/default/widgets";
    for _ in 0..600 {
        if client.get(widgets).await.status == 200 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("widgets are not served");
}

#[test]
fn recorded_sequences_have_the_results_of_kube_apiserver() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_on_sqlite(folder.path(), &[RECORDED_RELEASE]);
    let recorded = Recording::read();
    assert!(recorded.len() >= 300, "{}", recorded.len());
    let kinds = corpus();
    let client = server.admin();
    let differing: Vec<u64> = block_on(async {
        create_widgets(&client).await;
        let sequences = recorded.iter().map(async |(seed, steps)| {
            let kind = &kinds[usize::try_from(*seed).unwrap() % kinds.len()];
            let mut object = SequenceObject::new(&client, kind, *seed);
            let mut is_same = true;
            for (step, wanted) in generate(kind, *seed).iter().zip(steps) {
                let result = object.run(step).await;
                match wanted {
                    RecordedStep::Digest(wanted) => is_same &= digest(&result) == *wanted,
                    RecordedStep::Deviation => {}
                    RecordedStep::Recreated => object.recreate().await,
                }
            }
            object.delete().await;
            (!is_same).then_some(*seed)
        });
        futures_util::stream::iter(sequences)
            .buffered(CONCURRENT_SEQUENCES)
            .filter_map(async |seed| seed)
            .collect()
            .await
    });
    assert_eq!(differing, [0; 0], "seeds; `cargo xtask real apply` with UNSKEW_REAL_SEED shows the difference");
}
