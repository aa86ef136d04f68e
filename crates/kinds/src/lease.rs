//! Leases and lease candidates.

use object::KindRules;
use object::rules::NameRule;
use object::table::Column;
use object::table::cells::{AGE, NAME, string_cell, string_column};

use crate::strategy::{KindStrategy, LENIENT_RULES, RULES};
use crate::update_validation::immutable_fields::fixed_field;
use crate::validation::Field;

pub(crate) static LEASE_STRATEGY: KindStrategy = KindStrategy {
    allows_any_finalizer: true,
    rules: KindRules { allows_create_on_update: true, allows_unconditional_update: false, ..LENIENT_RULES },
    validate: |lease| check_lease(lease.at("spec")),
    columns: LEASES,
    ..KindStrategy::DEFAULT
};

pub(crate) static LEASE_CANDIDATE_STRATEGY: KindStrategy = KindStrategy {
    allows_any_finalizer: true,
    rules: KindRules { allows_unconditional_update: false, name_rule: NameRule::ConfigKey, ..RULES },
    validate: |candidate| check_candidate(candidate.at("spec")),
    immutable_fields: &[fixed_field("spec.leaseName")],
    columns: LEASE_CANDIDATES,
    ..KindStrategy::DEFAULT
};

const OLDEST_EMULATION_VERSION: &str = "OldestEmulationVersion";

fn check_lease(spec: Field<'_>) {
    spec.at("leaseDurationSeconds").positive_if_present();
    spec.at("leaseTransitions").not_negative();
    // Without the feature gate, both fields are ignored.
    if !spec.is_enabled("CoordinatedLeaderElection") {
        return;
    }
    if spec.at("strategy").is_present() {
        check_strategy(spec.at("strategy"));
    }
    if !spec.at("preferredHolder").text().is_empty() && spec.at("strategy").text().is_empty() {
        spec.at("preferredHolder").forbidden("may only be specified if `strategy` is defined");
    }
}

fn check_strategy(strategy: Field<'_>) {
    let shown = strategy.reported_at(strategy.at("strategy"));
    if strategy.text().contains('/') {
        shown.qualified_name();
    } else {
        shown.one_of(&[OLDEST_EMULATION_VERSION]);
    }
}

fn check_candidate(spec: Field<'_>) {
    let (emulation, binary, strategy) = (spec.at("emulationVersion"), spec.at("binaryVersion"), spec.at("strategy"));
    spec.require(&["leaseName"]);
    let parse = |version: Field<'_>| {
        let parsed = parse_version(version.text());
        if parsed.is_none() {
            version.invalid("must be a valid semantic version");
        }
        parsed.unwrap_or_default()
    };
    let emulated = if emulation.text().is_empty() { [0; 3] } else { parse(emulation) };
    if binary.require_text() {
        let version = parse(binary);
        if !emulation.text().is_empty() && version < emulated {
            binary.invalid("must be greater than or equal to `emulationVersion`");
        }
    }
    // Release 1.31 has a list instead.
    if spec.at("preferredStrategies").is_present() {
        spec.at("preferredStrategies").each(check_strategy);
    } else if strategy.require_text() {
        if strategy.text() == OLDEST_EMULATION_VERSION && emulated == [0; 3] {
            emulation.required("must be specified when `strategy` is 'OldestEmulationVersion'");
        }
        check_strategy(strategy);
    }
}

/// Major, minor and patch of `1.2.3`; what follows is not compared.
fn parse_version(text: &str) -> Option<[u64; 3]> {
    let core = text.split(['-', '+']).next()?;
    let mut parts = core.split('.').map(|part| {
        let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse().ok().filter(|_| is_number && (part == "0" || !part.starts_with('0')))
    });
    let version = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(version)
}

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
