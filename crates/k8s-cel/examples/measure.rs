//! Measures compilation and evaluation: `cargo run --release -p k8s-cel --example measure`.

use std::hint::black_box;
use std::io::Write;
use std::time::{Duration, Instant};

use k8s_cel::{DeclType, Environment, Evaluation, Field, Input, ListKind, Program, Release};
use serde_json::{Value as Json, json};

/// The fastest of several rounds: other work of the machine only adds time.
fn best(mut work: impl FnMut()) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..300 {
        let mut count = 1;
        let per_call = loop {
            let begin = Instant::now();
            for _ in 0..count {
                work();
            }
            let elapsed = begin.elapsed();
            if elapsed > Duration::from_micros(100) {
                break elapsed / count;
            }
            count *= 2;
        };
        best = best.min(per_call);
    }
    best
}

fn schema() -> DeclType {
    let text = || DeclType::string(Some(253));
    let port = [Field::new("name", text()), Field::new("port", DeclType::int()), Field::new("protocol", text())];
    let mut fields = vec![
        Field::new("replicas", DeclType::int()),
        Field::new("maxReplicas", DeclType::int()),
        Field::new("name", text()),
        Field::new("ports", DeclType::list(DeclType::object(port), Some(100), ListKind::Map(vec!["name".into()]))),
        Field::new("labels", DeclType::map(text(), Some(64))),
    ];
    for group in 0..20 {
        let leaf = (0..8).map(|at| Field::new(format!("field{at}"), text()));
        fields.push(Field::new(format!("section{group}"), DeclType::object(leaf)));
    }
    DeclType::object(fields)
}

/// An object of about 20 KB.
fn object() -> Json {
    let mut object = json!({"replicas": 3, "maxReplicas": 5, "name": "web", "labels": {"app": "web", "tier": "front"}});
    let port = |at: u32| json!({"name": format!("port-{at}"), "port": 8000 + at, "protocol": "TCP"});
    object["ports"] = (0..10).map(port).collect();
    for group in 0..20 {
        let fields = (0..8).map(|at| (format!("field{at}"), Json::from("x".repeat(100))));
        object[format!("section{group}")] = Json::Object(fields.collect());
    }
    object
}

/// Rules as custom resources have them: presence, order, sizes, prefixes, short lists.
fn rules() -> Vec<String> {
    let simple = |group: usize| {
        [
            format!("!has(self.section{group}.field0) || self.section{group}.field1 != ''"),
            format!("self.section{group}.field2.startsWith('x')"),
            format!("self.section{group}.field3 == oldSelf.section{group}.field3"),
            format!("self.section{group}.field4.size() <= 200"),
        ]
    };
    let mut rules: Vec<String> = (0..20).flat_map(simple).collect();
    for _ in 0..10 {
        rules.push("self.replicas <= self.maxReplicas".to_owned());
        rules.push("self.ports.all(p, p.port > 0 && p.port < 65536)".to_owned());
    }
    rules
}

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let decl = schema().named("Self");
    let environment =
        Environment::for_new_expressions(Release(36)).variable("self", decl.clone()).variable("oldSelf", decl);
    let object = object();
    let inputs = [("self", Input::Json(&object)), ("oldSelf", Input::Json(&object))];
    let evaluation = Evaluation::new(&inputs);
    for rule in [
        "self.replicas <= self.maxReplicas",
        "self.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "self.ports.all(p, p.port > 0 && p.port < 65536)",
        "self.labels.all(k, k.size() < 64 && self.labels[k] != '')",
        "has(self.section3.field1) ? self.section3.field1.startsWith('x') : true",
    ] {
        let program = environment.compile(rule).expect("the rule is valid");
        let compile = best(|| drop(black_box(environment.compile(rule))));
        let evaluate = best(|| drop(black_box(program.evaluate(&evaluation))));
        writeln!(out, "compile {compile:>10.2?}   evaluate {evaluate:>10.2?}   {rule}")?;
    }
    let rules = rules();
    let programs: Vec<Program> = rules.iter().map(|rule| environment.compile(rule).expect("valid")).collect();
    let all = best(|| {
        for program in &programs {
            drop(black_box(program.evaluate(&evaluation)));
        }
    });
    let size = object.to_string().len();
    writeln!(out, "{} rules on an object of {size} bytes: {all:.2?}", programs.len())
}
