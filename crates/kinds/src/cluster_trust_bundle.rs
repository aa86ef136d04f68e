//! Cluster trust bundles.

use object::KindRules;
use object::table::Column;
use object::table::cells::{NAME, string_cell_or, string_column};

use crate::certificate_signing_request::BY_SIGNER;
use crate::strategy::{KindStrategy, RULES};
use crate::update_validation::immutable_fields::fixed_field;

pub(crate) static STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { allows_unconditional_update: false, ..RULES },
    immutable_fields: &[fixed_field("spec.signerName")],
    columns: TRUST_BUNDLES,
    selectable_fields: &BY_SIGNER,
    ..KindStrategy::DEFAULT
};

const TRUST_BUNDLES: &[Column] = &[
    NAME,
    string_column("SignerName", "Whose it is.", |bundle, _| string_cell_or(bundle, &["spec", "signerName"], "<none>")),
];
