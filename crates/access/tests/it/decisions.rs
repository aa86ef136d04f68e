//! A table of RBAC decisions as Kubernetes documents them.

use access::Authorizer;
use access::rbac::RbacIndex;

use crate::rbac_notation;

pub(crate) const POLICY: &str = "
    clusterrole cluster-admin: * * *; * *
    clusterrole pod-reader: get,list,watch core pods
    clusterrole log-reader: get core pods/log
    clusterrole core-all: * core *
    clusterrole scaler: get,update * */scale
    clusterrole pod-stars: get core pods/*
    clusterrole named-secret: get,list,watch,create,update,delete,deletecollection core secrets token
    clusterrole deployments: * apps deployments
    clusterrole widgets: get * widgets
    clusterrole two-groups: list apps,extensions deployments,replicasets
    clusterrole namespaces: get,list core namespaces
    clusterrole health: get /healthz,/healthz/*
    clusterrole paths: get *
    clusterrole metrics: get /metrics**
    clusterrole inner-star: get /apis/*/status
    clusterrole both: get /version; get core pods
    clusterrole empty:
    clusterrole impersonator: impersonate core users,groups,serviceaccounts; impersonate authentication.k8s.io uids,userextras/scopes
    clusterrole one-group: impersonate core groups developers
    clusterrole part-a {to-view=yes}: get core configmaps
    clusterrole part-b {to-view=yes}: get core secrets open
    clusterrole view {to-edit=yes} < to-view=yes: delete core everything
    clusterrole edit < to-edit=yes: delete core everything
    clusterrole ring-a {ring=a} < ring=b:
    clusterrole ring-b {ring=b} < ring=a:
    clusterrole verbs: approve,escalate,bind,use certificates.k8s.io signers
    role dev/deployer: create,update apps deployments; get core configmaps settings
    role dev/health: get /healthz
    role ops/deployer: delete apps deployments
    role dev/namespaces: get,list core namespaces

    bind admins to clusterrole cluster-admin: group=admins
    bind readers to clusterrole pod-reader: user=alice group=readers sa=dev/builder
    bind logs to clusterrole log-reader: user=alice
    bind core to clusterrole core-all: user=corey
    bind scalers to clusterrole scaler: user=scott
    bind stars to clusterrole pod-stars: user=stella
    bind secrets to clusterrole named-secret: user=sam
    bind deployments to clusterrole deployments: user=dora
    bind widgets to clusterrole widgets: user=wim
    bind two to clusterrole two-groups: user=tom
    bind health to clusterrole health: user=hank
    bind paths to clusterrole paths: user=pat
    bind metrics to clusterrole metrics: user=mona
    bind inner to clusterrole inner-star: user=ina
    bind both to clusterrole both: user=beth
    bind empty to clusterrole empty: user=emil
    bind impersonators to clusterrole impersonator: user=imre
    bind one-group to clusterrole one-group: user=olga
    bind view to clusterrole view: user=vera
    bind edit to clusterrole edit: user=eddy
    bind rings to clusterrole ring-a: user=rita
    bind verbs to clusterrole verbs: user=viktor
    bind ghost to clusterrole missing: user=gina
    bind cluster-role-kind to role deployer: user=rolf
    bind other-kind to Policy pod-reader: user=polly
    bind odd-subject to clusterrole pod-reader: Robot=rob
    bind bare-account to clusterrole pod-reader: sa=lost
    bind every-account to clusterrole log-reader: group=system:serviceaccounts
    bind absent to clusterrole pod-reader:
    bind known to clusterrole health: group=system:authenticated
    bind unknown to clusterrole metrics: group=system:unauthenticated
    bind dev/deployers to role deployer: user=bob sa=builder sa=ci/robot
    bind dev/readers to clusterrole pod-reader: user=carol group=system:serviceaccounts:ci
    bind dev/admins to clusterrole cluster-admin: user=dave
    bind dev/health to role health: user=bob
    bind dev/secrets to clusterrole named-secret: user=bob
    bind dev/namespaces to clusterrole namespaces: user=bob
    bind dev/ghost to role missing: user=gina
    bind ops/deployers to role deployer: user=otto
    bind Ops/deployers to role deployer: user=otto
";

/// User, query, expected decision.
const DECISIONS: &[(&str, &str, &str)] = &[
    // Verbs.
    ("alice", "get pods p -n dev", "yes"),
    ("alice", "list pods -n dev", "yes"),
    ("alice", "watch pods -n dev", "yes"),
    ("alice", "delete pods p -n dev", "no"),
    ("alice", "create pods -n dev", "no"),
    ("alice", "deletecollection pods -n dev", "no"),
    ("alice", "GET pods p -n dev", "no"),
    ("alice", "* pods p -n dev", "no"),
    ("dora", "get deployments.apps d -n dev", "yes"),
    ("dora", "patch deployments.apps d -n dev", "yes"),
    ("dora", "frobnicate deployments.apps d -n dev", "yes"),
    ("dora", "* deployments.apps d -n dev", "yes"),
    ("viktor", "approve signers.certificates.k8s.io x", "yes"),
    ("viktor", "use signers.certificates.k8s.io x", "yes"),
    ("viktor", "sign signers.certificates.k8s.io x", "no"),
    // Cluster scope and namespaces.
    ("alice", "list pods", "yes"),
    ("alice", "get pods p -n other", "yes"),
    ("bob", "create deployments.apps -n dev", "yes"),
    ("bob", "create deployments.apps", "no"),
    ("bob", "create deployments.apps -n ops", "no"),
    ("bob", "create deployments.apps -n DEV", "no"),
    ("bob", "create deployments.apps -n dev2", "no"),
    ("otto", "delete deployments.apps d -n ops", "yes"),
    ("otto", "create deployments.apps -n ops", "no"),
    ("otto", "delete deployments.apps d -n dev", "no"),
    ("otto", "delete deployments.apps d -n Ops", "no"),
    ("carol", "list pods -n dev", "yes"),
    ("carol", "list pods", "no"),
    ("carol", "get pods p -n ops", "no"),
    ("dave", "delete secrets s -n dev", "yes"),
    ("dave", "delete nodes n", "no"),
    ("dave", "delete secrets s -n ops", "no"),
    ("bob", "get namespaces dev -n dev", "yes"),
    ("bob", "get namespaces ops -n ops", "no"),
    ("bob", "list namespaces", "no"),
    // API groups.
    ("alice", "get pods.apps p -n dev", "no"),
    ("alice", "get pods.metrics.k8s.io p -n dev", "no"),
    ("wim", "get widgets w", "yes"),
    ("wim", "get widgets.example.com w", "yes"),
    ("wim", "get gadgets.example.com w", "no"),
    ("tom", "list deployments.apps", "yes"),
    ("tom", "list replicasets.extensions", "yes"),
    ("tom", "list deployments", "no"),
    ("tom", "list statefulsets.apps", "no"),
    ("corey", "delete configmaps c -n dev", "yes"),
    ("corey", "delete deployments.apps c -n dev", "no"),
    // Subresources.
    ("alice", "get pods/log p -n dev", "yes"),
    ("alice", "get pods/status p -n dev", "no"),
    ("alice", "list pods/log -n dev", "no"),
    ("alice", "create pods/exec p -n dev", "no"),
    ("carol", "get pods/log p -n dev", "no"),
    ("corey", "create pods/exec p -n dev", "yes"),
    ("corey", "get pods/log p", "yes"),
    ("dora", "get deployments.apps/scale d -n dev", "no"),
    ("dora", "update deployments.apps/status d -n dev", "no"),
    ("scott", "get deployments.apps/scale d -n dev", "yes"),
    ("scott", "update replicationcontrollers/scale d -n dev", "yes"),
    ("scott", "update widgets.example.com/scale d", "yes"),
    ("scott", "patch deployments.apps/scale d -n dev", "no"),
    ("scott", "get deployments.apps d -n dev", "no"),
    ("scott", "get deployments.apps/autoscale d -n dev", "no"),
    ("scott", "get scale s", "no"),
    ("scott", "get */scale s", "yes"),
    ("stella", "get pods/log p -n dev", "no"),
    ("stella", "get pods p -n dev", "no"),
    ("stella", "get pods/* p -n dev", "yes"),
    // Object names: lists and creates have none, unless a field selector provides it.
    ("sam", "get secrets token -n dev", "yes"),
    ("sam", "update secrets token -n dev", "yes"),
    ("sam", "delete secrets token -n dev", "yes"),
    ("sam", "get secrets other -n dev", "no"),
    ("sam", "list secrets -n dev", "no"),
    ("sam", "watch secrets -n dev", "no"),
    ("sam", "list secrets token -n dev", "yes"),
    ("sam", "watch secrets token -n dev", "yes"),
    ("sam", "list secrets", "no"),
    ("sam", "create secrets -n dev", "no"),
    ("sam", "deletecollection secrets -n dev", "no"),
    ("sam", "get secrets TOKEN -n dev", "no"),
    ("sam", "get secrets/status token -n dev", "no"),
    ("bob", "get configmaps settings -n dev", "yes"),
    ("bob", "get configmaps settings2 -n dev", "no"),
    ("bob", "get secrets token -n dev", "yes"),
    ("bob", "get secrets token -n ops", "no"),
    // Paths.
    ("hank", "get /healthz", "yes"),
    ("hank", "get /healthz/etcd", "yes"),
    ("hank", "get /healthz/a/b", "yes"),
    ("hank", "get /healthz/", "yes"),
    ("hank", "get /healthzz", "no"),
    ("hank", "head /healthz", "no"),
    ("hank", "get /", "no"),
    ("hank", "get /HEALTHZ", "no"),
    ("pat", "get /anything/at/all", "yes"),
    ("pat", "post /anything", "no"),
    ("mona", "get /metrics", "yes"),
    ("mona", "get /metrics/slis", "yes"),
    ("mona", "get /metric", "no"),
    ("ina", "get /apis/apps/status", "no"),
    ("ina", "get /apis/*/status", "yes"),
    ("bob", "get /healthz", "no"),
    ("dave", "get /healthz", "no"),
    ("alice", "get /healthz", "no"),
    ("alice+admins", "delete /anything", "yes"),
    ("beth", "get /version", "yes"),
    ("beth", "get pods p -n dev", "yes"),
    ("corey", "get /api", "no"),
    // Users, groups and service accounts.
    ("Alice", "get pods p -n dev", "no"),
    ("zoe+readers", "get pods p -n dev", "yes"),
    ("zoe+Readers", "get pods p -n dev", "no"),
    ("readers", "get pods p -n dev", "no"),
    ("zoe+alice", "get pods/log p -n dev", "no"),
    ("zoe+x+y+admins", "delete nodes n", "yes"),
    ("zoe+system:masters", "delete nodes n", "yes"),
    ("system:masters", "delete nodes n", "no"),
    ("zoe+system:authenticated", "get /healthz", "yes"),
    ("system:anonymous+system:unauthenticated", "get /healthz", "no"),
    ("system:anonymous+system:unauthenticated", "get /metrics", "yes"),
    ("sa:dev/builder", "list pods -n ops", "yes"),
    ("sa:dev/builder", "create deployments.apps -n dev", "yes"),
    ("sa:dev/builder", "get pods/log p -n ops", "yes"),
    ("sa:dev/other", "get pods/log p -n ops", "yes"),
    ("sa:ops/builder", "create deployments.apps -n dev", "no"),
    ("sa:ci/robot", "create deployments.apps -n dev", "yes"),
    ("sa:ci/robot", "create deployments.apps -n ci", "no"),
    ("sa:ci/anyone", "list pods -n dev", "yes"),
    ("sa:ci/anyone", "list pods -n ci", "no"),
    ("sa:dev/lost", "list pods -n dev", "no"),
    ("system:serviceaccount:dev:builder", "list pods -n dev", "yes"),
    ("system:serviceaccount:dev:builder", "get pods/log p -n dev", "no"),
    ("dev:builder", "list pods -n dev", "no"),
    ("builder", "list pods -n dev", "no"),
    ("rob", "get pods p -n dev", "no"),
    ("absent", "get pods p -n dev", "no"),
    // Missing roles and unsupported role references.
    ("gina", "get pods p -n dev", "no"),
    ("rolf", "create deployments.apps -n dev", "no"),
    ("polly", "get pods p -n dev", "no"),
    ("emil", "get pods p -n dev", "no"),
    // Aggregated roles: their stored rules are ignored.
    ("vera", "get configmaps c -n dev", "yes"),
    ("vera", "get secrets open -n dev", "yes"),
    ("vera", "get secrets shut -n dev", "no"),
    ("vera", "delete everything x", "no"),
    ("eddy", "get configmaps c -n dev", "yes"),
    ("eddy", "get secrets open -n dev", "yes"),
    ("eddy", "delete everything x", "no"),
    ("rita", "get pods p -n dev", "no"),
    // Impersonation.
    ("imre", "impersonate users anybody", "yes"),
    ("imre", "impersonate groups system:masters", "yes"),
    ("imre", "impersonate serviceaccounts builder -n dev", "yes"),
    ("imre", "impersonate uids.authentication.k8s.io 1", "yes"),
    ("imre", "impersonate userextras.authentication.k8s.io/scopes view", "yes"),
    ("imre", "impersonate userextras.authentication.k8s.io/other view", "no"),
    ("olga", "impersonate groups developers", "yes"),
    ("olga", "impersonate groups system:masters", "no"),
    ("olga", "impersonate users anybody", "no"),
    ("alice+admins", "impersonate users anybody", "yes"),
];

pub(crate) fn rbac_authorizer() -> Authorizer {
    Authorizer::parse("Node,RBAC").unwrap()
}

pub(crate) fn is_allowed(index: &RbacIndex, user_text: &str, request: &str) -> bool {
    rbac_authorizer()
        .decide(index, &rbac_notation::parse_attributes(&rbac_notation::parse_user(user_text), request))
        .is_allowed()
}

#[test]
fn index_decides_as_kubernetes() {
    assert!(DECISIONS.len() >= 120, "{}", DECISIONS.len());
    let index = rbac_notation::parse_index(POLICY);
    for (who, question, expected) in DECISIONS {
        assert_eq!(is_allowed(&index, who, question), *expected == "yes", "{who}: {question}");
    }
}

#[test]
fn reference_evaluator_decides_as_kubernetes() {
    let objects = rbac_notation::parse_objects(POLICY);
    for (who, question, expected) in DECISIONS {
        let user = rbac_notation::parse_user(who);
        let is_master = user.is_in_group("system:masters");
        let is_allowed = is_master
            || crate::reference_evaluator::policy_allows(&objects, &rbac_notation::parse_attributes(&user, question));
        assert_eq!(is_allowed, *expected == "yes", "{who}: {question}");
    }
}
