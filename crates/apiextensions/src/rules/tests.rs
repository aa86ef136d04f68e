//! Rules that are compiled late, and blocking errors. `tests/rules` compares verdicts with recorded ones.

use std::sync::Arc;

use api::FieldError;
use k8s_cel::Release;
use schema::structural::StructuralSchema;
use serde_json::{Value, json};

use super::{Rules, unchecked_rules_error};

fn rules(schema: &Value) -> Rules {
    Rules::new(Arc::new(StructuralSchema::from_json(schema).unwrap()), Release(36))
}

#[test]
fn rules_compile_when_an_object_has_a_value_for_them() {
    let rule = json!([{"rule": "self > 0"}]);
    let number = json!({"type": "integer", "x-kubernetes-validations": rule});
    let spec = json!({"type": "object", "properties": {"a": number, "b": number, "c": {"type": "string"}}});
    let rules = rules(&json!({"type": "object", "properties": {"spec": spec}}));
    assert!(rules.tree.get().is_none(), "the rules of a version that is not written are not compiled");

    let object = json!({"spec": {"a": 0, "c": "x"}});
    let outcome = rules.evaluate(object.as_object().unwrap(), None);
    let errors: Vec<_> = outcome.errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors, ["spec.a: Invalid value: 0: failed rule: self > 0"]);

    let tree = rules.tree().unwrap();
    let [(0, spec)] = &*tree.properties else { panic!("only spec has rules below") };
    let compiled = |node: &super::RuleNode| node.rules().unwrap().is_compiled();
    let is_compiled: Vec<_> = spec.properties.iter().map(|(index, node)| (*index, compiled(node))).collect();
    assert_eq!(is_compiled, [(0, true), (1, false)], "only the rules of a, which the object has");
}

#[test]
fn schema_without_rules_has_no_tree() {
    let rules = rules(&json!({"type": "object", "properties": {"spec": {"type": "object"}}}));
    assert!(rules.is_empty());
    assert_eq!(rules.evaluate(json!({"spec": {}}).as_object().unwrap(), None), super::RuleOutcome::default());
}

#[test]
fn rules_are_not_checked_after_blocking_errors() {
    let blocking = [
        FieldError::required("a", ""),
        FieldError::not_supported("a", "x", &["y"]),
        FieldError::too_long("a", 1),
        FieldError::too_many("a", 2, 1),
        FieldError::type_invalid("a", "string", ""),
    ];
    for error in blocking {
        let found = unchecked_rules_error(&[FieldError::forbidden("b", ""), error]).map(|error| error.to_string());
        let expected = "<nil>: Invalid value: null: some validation rules were not checked because the object was \
                        invalid; correct the existing errors to complete validation";
        assert_eq!(found.as_deref(), Some(expected));
    }
    let others = [FieldError::invalid("a", 1, ""), FieldError::forbidden("a", ""), FieldError::duplicate("a", 1)];
    assert_eq!(unchecked_rules_error(&others), None);
}

#[test]
fn rules_can_be_shared_between_threads() {
    let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.metadata.name != 'b'"}]});
    let rules = rules(&schema);
    let is_valid = |name: &str| {
        let object = json!({"metadata": {"name": name}});
        rules.evaluate(object.as_object().unwrap(), None).errors.is_empty()
    };
    std::thread::scope(|scope| {
        let threads = ["a", "b", "a", "b"].map(|name| scope.spawn(move || (name, is_valid(name))));
        for thread in threads {
            let (name, is_valid) = thread.join().unwrap();
            assert_eq!(is_valid, name == "a");
        }
    });
}
