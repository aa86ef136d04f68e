//! `anyOf`, `oneOf`, `allOf` and `not`.
//!
//! Nothing below a junctor is compared with an old value. Of failed alternatives the errors of the first one with most
//! passed checks are reported.

use api::quote::Quoted;
use serde_json::Value;

use super::super::node::SchemaNode;
use super::{Outcome, Validator};

impl Validator {
    pub(super) fn check_junctors(&mut self, value: &Value, schema: &SchemaNode, outcome: &mut Outcome) {
        let mut joined = Outcome::default();
        self.check_any_of(value, schema.any_of(), &mut joined);
        self.check_one_of(value, schema.one_of(), &mut joined);
        self.check_all_of(value, schema.all_of(), &mut joined);
        if let Some(not) = schema.not()
            && self.check(value, None, not).is_valid()
        {
            self.junctor_error(&mut joined, "must not validate the schema (not)");
        }
        joined.count();
        outcome.merge(joined);
    }

    fn check_any_of(&mut self, value: &Value, alternatives: &[SchemaNode], joined: &mut Outcome) {
        let mut best: Option<Outcome> = None;
        for alternative in alternatives {
            let result = self.check(value, None, alternative);
            if result.is_valid() {
                joined.merge(result);
                return;
            }
            keep_best(&mut best, result);
        }
        if let Some(best) = best {
            self.junctor_error(joined, "must validate at least one schema (anyOf)");
            joined.merge(best);
        }
    }

    fn check_one_of(&mut self, value: &Value, alternatives: &[SchemaNode], joined: &mut Outcome) {
        let mut best: Option<Outcome> = None;
        let mut first_valid: Option<Outcome> = None;
        let mut valid = 0_usize;
        for alternative in alternatives {
            let result = self.check(value, None, alternative);
            if result.is_valid() {
                valid += 1;
                best = None;
                first_valid.get_or_insert(result);
            } else if valid == 0 {
                keep_best(&mut best, result);
            }
        }
        match (valid, first_valid) {
            (1, Some(only)) => joined.merge(only),
            (0, _) if alternatives.is_empty() => {}
            (0, _) => {
                self.junctor_error(joined, "must validate one and only one schema (oneOf). Found none valid");
                joined.merge(best.unwrap_or_default());
            }
            _ => {
                let found = format!("Found {valid} valid alternatives");
                self.junctor_error(joined, &format!("must validate one and only one schema (oneOf). {found}"));
            }
        }
    }

    fn check_all_of(&mut self, value: &Value, parts: &[SchemaNode], joined: &mut Outcome) {
        let mut valid = 0_usize;
        for part in parts {
            let result = self.check(value, None, part);
            valid += usize::from(result.is_valid());
            joined.merge(result);
        }
        if valid != parts.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            self.junctor_error(joined, &format!("must validate all the schemas (allOf){none}"));
        }
    }

    fn junctor_error(&self, joined: &mut Outcome, problem: &str) {
        self.without_field(joined, format!("{} {problem}", Quoted(&self.path)));
    }
}

fn keep_best(best: &mut Option<Outcome>, result: Outcome) {
    if best.as_ref().is_none_or(|best| result.matches() > best.matches()) {
        *best = Some(result);
    }
}
