//! Bounds of compilation and evaluation.

use k8s_cel::{Environment, Evaluation, Release};

#[test]
fn cost_limit_stops_evaluation() {
    let environment = Environment::for_new_expressions(Release(36));
    let program = environment.compile("[1, 2, 3, 4, 5, 6, 7, 8].all(x, x > 0)").expect("the expression is valid");
    let free = program.evaluate(&Evaluation::new(&[]));
    assert!(free.result.is_ok());
    let limited = program.evaluate(&Evaluation { cost_limit: free.cost - 1, ..Evaluation::new(&[]) });
    let error = limited.result.expect_err("the limit is below the cost");
    assert!(error.is_cost_limit());
    assert_eq!(error.to_string(), "operation cancelled: actual cost limit exceeded");
}
