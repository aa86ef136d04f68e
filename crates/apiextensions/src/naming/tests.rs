use serde_json::json;

use super::*;

const NOW: &str = "2026-11-18T00:00:00Z";

/// Requested and accepted names as `plural singular kind listKind shortNames...`, and conditions as `type=status`.
fn definition(requested: &str, accepted: &str, conditions: &[&str]) -> Definition {
    let names = |text: &str| {
        let mut words = text.split(' ').map(str::to_owned);
        let [plural, singular, kind, list_kind] = [(); 4].map(|()| words.next().unwrap_or_default());
        json!({"plural": plural, "singular": singular, "kind": kind, "listKind": list_kind, "shortNames": words.collect::<Vec<_>>()})
    };
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|text| {
            let (kind, status) = text.split_once('=').expect("type=status");
            json!({"type": kind, "status": status, "reason": "Old", "message": "old"})
        })
        .collect();
    let object = json!({"metadata": {"name": "foos.ex.io"},
        "spec": {"group": "ex.io", "scope": "Cluster", "names": names(requested)},
        "status": {"acceptedNames": names(accepted), "conditions": conditions}});
    Definition::from_object(object.as_object().unwrap()).expect("test value is a definition")
}

fn show(decision: Option<NamingDecision>) -> String {
    let Some(NamingDecision { accepted_names: names, names_accepted, established }) = decision else {
        return "no change".to_owned();
    };
    let show =
        |condition: &DefinitionCondition| format!("{} {} {}", condition.status, condition.reason, condition.message);
    format!(
        "{} {} {} {} {} | {} | {}",
        names.plural,
        names.singular,
        names.kind,
        names.list_kind,
        names.short_names.join(","),
        show(&names_accepted),
        show(&established)
    )
}

#[test]
fn names_are_accepted_one_by_one() {
    let other = definition("", "bars bar Bar BarList b bb", &[]);
    let check = |requested: &str, accepted: &str, conditions: &[&str], expected: &str| {
        let definition = definition(requested, accepted, conditions);
        assert_eq!(show(decide_names(&definition, &GroupNames::new([&definition, &other]))), expected, "{requested}");
    };
    let installing = "False Installing the initial names have been accepted";
    let not_accepted = "False NotAccepted not all names are accepted";
    check("foos foo Foo FooList f", "foos foo Foo FooList f", &[], "no change");
    check(
        "foos foo Foo FooList f",
        "",
        &[],
        &format!("foos foo Foo FooList f | True NoConflicts no conflicts found | {installing}"),
    );
    check(
        "bars foo Foo FooList",
        "",
        &[],
        &format!(" foo Foo FooList  | False PluralConflict \"bars\" is already in use | {not_accepted}"),
    );
    check(
        "foos b Foo FooList",
        "",
        &[],
        &format!("foos  Foo FooList  | False SingularConflict \"b\" is already in use | {not_accepted}"),
    );
    check(
        "foos foo Foo FooList f b bb",
        "",
        &[],
        &format!(
            "foos foo Foo FooList  | False ShortNamesConflict [\"b\" is already in use, \"bb\" is already in use] | {not_accepted}"
        ),
    );
    check(
        "bars bar Bar BarList b",
        "",
        &[],
        &format!("    \u{20}| False ListKindConflict \"BarList\" is already in use | {not_accepted}").replacen(
            "    \u{20}",
            "     ",
            1,
        ),
    );
    check(
        "bars foo Bar FooList",
        "",
        &[],
        &format!(" foo  FooList  | False KindConflict \"Bar\" is already in use | {not_accepted}"),
    );
    check(
        "foos bar Foo FooList",
        "foos foo Foo FooList",
        &["NamesAccepted=True", "Established=True"],
        "foos foo Foo FooList  | False SingularConflict \"bar\" is already in use | True Old old",
    );
    check(
        "foos bar Foo FooList",
        "foos foo Foo FooList",
        &["Established=False"],
        "foos foo Foo FooList  | False SingularConflict \"bar\" is already in use | False Old old",
    );
}

#[test]
fn same_conflict_changes_nothing() {
    let other = definition("", "bars bar Bar BarList", &[]);
    let mut definition = definition("foos bar Foo FooList", "foos  Foo FooList", &[]);
    let decision = decide_names(&definition, &GroupNames::new([&other])).unwrap();
    definition.status.conditions = vec![decision.names_accepted];
    assert_eq!(decide_names(&definition, &GroupNames::new([&other])), None);
}

#[test]
fn definition_is_established_after_its_names_are_accepted() {
    let decide = |conditions: &[&str], is_valid| {
        decide_established(&definition("", "", conditions), is_valid).map(|c| (c.status, c.reason))
    };
    let some = |status: &str, reason: &str| Some((status.to_owned(), reason.to_owned()));
    assert_eq!(decide(&[], true), None);
    assert_eq!(decide(&["NamesAccepted=False"], true), None);
    assert_eq!(decide(&["NamesAccepted=True"], true), some("True", "InitialNamesAccepted"));
    assert_eq!(decide(&["NamesAccepted=True"], false), some("False", "InvalidCABundle"));
    assert_eq!(decide(&["NamesAccepted=True", "Established=True"], false), None);
}

#[test]
fn decision_is_written_into_the_object() {
    let definition = definition("foos foo Foo FooList f", "", &["Established=False"]);
    let decision = decide_names(&definition, &GroupNames::new([&definition])).unwrap();
    let mut object = json!({"status": {"other": 1, "conditions": [
        {"type": "Established", "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z"},
        {"type": "NonStructuralSchema", "status": "True"}]}});
    let object = object.as_object_mut().unwrap();
    apply_decision(object, &decision, NOW.parse().unwrap());
    remove_condition(object, "NonStructuralSchema");
    assert_eq!(
        object["status"],
        json!({"other": 1, "acceptedNames": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList", "shortNames": ["f"]},
            "conditions": [
                {"type": "Established", "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z",
                    "reason": "Installing", "message": "the initial names have been accepted"},
                {"type": "NamesAccepted", "status": "True", "lastTransitionTime": NOW,
                    "reason": "NoConflicts", "message": "no conflicts found"}]})
    );
}

#[test]
fn other_conditions_have_the_texts_of_kubernetes() {
    let approval = |group: &str, annotation: &str| {
        let object =
            json!({"metadata": {"annotations": {"api-approved.kubernetes.io": annotation}}, "spec": {"group": group}});
        approval_condition(object.as_object().unwrap()).map(|c| format!("{} {} {}", c.status, c.reason, c.message))
    };
    assert_eq!(approval("ex.io", ""), None);
    assert_eq!(approval("a.k8s.io", "https://x/y").unwrap(), "True ApprovedAnnotation approved in https://x/y");
    assert_eq!(
        approval("a.k8s.io", "unapproved, x").unwrap(),
        "False UnapprovedAnnotation not approved: \"unapproved, x\""
    );
    assert!(approval("a.k8s.io", "").unwrap().starts_with("False MissingAnnotation protected groups"));
    assert!(approval("a.k8s.io", "x").unwrap().starts_with("False InvalidAnnotation protected groups"));
    assert_eq!(non_structural_condition(false, &[]), None);
    assert_eq!(
        non_structural_condition(
            true,
            &[FieldError::required("spec.versions[0].schema.openAPIV3Schema.type", "must not be empty at the root")]
        )
        .unwrap()
        .message,
        "[spec.preserveUnknownFields: Invalid value: true: must be false, spec.versions[0].schema.openAPIV3Schema.type: Required value: must not be empty at the root]"
    );
    let terminating = Termination::Unconfirmed("x").condition();
    assert_eq!(terminating.message, "could not confirm zero CustomResources remaining: x");
}
