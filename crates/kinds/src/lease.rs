//! Leases and lease candidates.

use object::KindRules;
use object::table::Column;
use object::table::cells::{AGE, NAME, string_cell, string_column};

use crate::strategy::{KindStrategy, RULES};
use crate::update_validation::immutable_fields::fixed_field;

pub(crate) static LEASE_STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { allows_create_on_update: true, allows_unconditional_update: false, ..RULES },
    columns: LEASES,
    ..KindStrategy::DEFAULT
};

pub(crate) static LEASE_CANDIDATE_STRATEGY: KindStrategy = KindStrategy {
    rules: KindRules { allows_unconditional_update: false, ..RULES },
    immutable_fields: &[fixed_field("spec.leaseName")],
    columns: LEASE_CANDIDATES,
    ..KindStrategy::DEFAULT
};

const LEASES: &[Column] =
    &[NAME, string_column("Holder", "Who holds it.", |lease, _| string_cell(lease, &["spec", "holderIdentity"])), AGE];

const LEASE_CANDIDATES: &[Column] = &[
    NAME,
    string_column("LeaseName", "The lease it wants.", |candidate, _| string_cell(candidate, &["spec", "leaseName"])),
    string_column("BinaryVersion", "Its version.", |candidate, _| string_cell(candidate, &["spec", "binaryVersion"])),
    string_column("EmulationVersion", "The version it behaves like.", |candidate, _| {
        string_cell(candidate, &["spec", "emulationVersion"])
    }),
    AGE,
];
