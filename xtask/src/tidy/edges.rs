//! Allowed dependencies between crates: the layers of ARCHITECTURE.md as a table.
//!
//! Invariant: a crate without a row is a problem, so that a new crate must be assigned a layer.

use crate::metadata::{Dependency, Metadata, Package};

/// A workspace crate and the workspace crates it may depend on.
struct Layer {
    name: &'static str,
    may_use: MayUse,
    /// Additional workspace crates that its tests may use.
    tests_may_use: &'static [&'static str],
}

/// The workspace crates that a crate may depend on.
enum MayUse {
    /// All production crates.
    Everything,
    /// Only these.
    Only(&'static [&'static str]),
}

/// The layers from top to bottom.
const LAYERS: [Layer; 14] = [
    Layer { name: "innkeeper", may_use: MayUse::Everything, tests_may_use: &[TESTKIT] },
    Layer { name: BENCH, may_use: MayUse::Everything, tests_may_use: &[] },
    Layer { name: FUZZ, may_use: MayUse::Everything, tests_may_use: &[] },
    Layer {
        name: "innkeeper-server",
        may_use: MayUse::Only(&[CORE]),
        tests_may_use: &[CORE_FAKES, TESTKIT, "innkeeper-workspace"],
    },
    Layer {
        name: "innkeeper-workspace",
        may_use: MayUse::Only(&[CORE]),
        tests_may_use: &["innkeeper-store"],
    },
    Layer { name: "innkeeper-store", may_use: MayUse::Only(&[CORE]), tests_may_use: &[CORE_FAKES, TESTKIT] },
    Layer {
        name: "innkeeper-agents",
        may_use: MayUse::Only(&[CORE, "innkeeper-claude"]),
        tests_may_use: &[],
    },
    Layer { name: CORE_FAKES, may_use: MayUse::Only(&[CORE]), tests_may_use: &[] },
    Layer { name: CORE, may_use: MayUse::Only(&[]), tests_may_use: &[] },
    Layer {
        name: "innkeeper-claude",
        may_use: MayUse::Only(&[]),
        tests_may_use: &[TESTKIT, "innkeeper-gateway"],
    },
    Layer {
        name: "innkeeper-gateway-check",
        may_use: MayUse::Only(&[]),
        tests_may_use: &[TESTKIT, "innkeeper-gateway"],
    },
    Layer { name: "innkeeper-gateway", may_use: MayUse::Only(&[]), tests_may_use: &[TESTKIT] },
    Layer { name: TESTKIT, may_use: MayUse::Only(&[]), tests_may_use: &[] },
    Layer { name: "xtask", may_use: MayUse::Only(&[]), tests_may_use: &[] },
];

/// Crates for development only, which are not part of the `innkeeper` binary.
const DEVELOPMENT: [&str; 4] = [BENCH, FUZZ, CORE_FAKES, TESTKIT];
const BENCH: &str = "innkeeper-bench";
const FUZZ: &str = "innkeeper-fuzz";
const CORE_FAKES: &str = "innkeeper-core-fakes";
const TESTKIT: &str = "innkeeper-testkit";

/// The crate that does no I/O; its dependencies are listed completely.
const CORE: &str = "innkeeper-core";
const CORE_MAY_USE: [&str; 19] = [
    "ahp",
    "ahp-types",
    "base64",
    "bytes",
    "jiff",
    "memchr",
    "regex",
    "secrecy",
    "serde",
    "serde_json",
    "sha2",
    "thiserror",
    "tokio",
    "tokio-util",
    "tracing",
    "tree-sitter",
    "tree-sitter-bash",
    "url",
    "uuid",
];
/// Tokio features without files, sockets, processes and signals.
const CORE_TOKIO_FEATURES: [&str; 4] = ["macros", "rt", "sync", "time"];

/// Crates that are independent of the protocol.
const WITHOUT_PROTOCOL: [&str; 3] = ["innkeeper-claude", "innkeeper-gateway", "innkeeper-gateway-check"];
const PROTOCOL: [&str; 3] = ["ahp", "ahp-types", "ahp-ws"];

/// Checks all dependencies of the workspace crates.
pub(super) fn check(metadata: &Metadata) -> Vec<String> {
    let ours: Vec<&str> = metadata.members().map(|package| package.name.as_str()).collect();
    let mut problems = Vec::new();
    for package in metadata.members() {
        let Some(layer) = LAYERS.iter().find(|layer| layer.name == package.name) else {
            problems.push(format!(
                "{}: crate without a layer; add a row in xtask/src/tidy/edges.rs",
                package.name
            ));
            continue;
        };
        for dependency in &package.dependencies {
            let problem = if ours.contains(&dependency.name.as_str()) {
                workspace_problem(layer, dependency)
            } else {
                external_problem(package, dependency)
            };
            problems
                .extend(problem.map(|problem| format!("{} -> {}: {problem}", package.name, dependency.name)));
        }
    }
    problems
}

/// The problem with a dependency on a workspace crate, if any.
fn workspace_problem(layer: &Layer, dependency: &Dependency) -> Option<String> {
    let name = dependency.name.as_str();
    if dependency.kind.as_deref() == Some("dev") && layer.tests_may_use.contains(&name) {
        return None;
    }
    if DEVELOPMENT.contains(&name) && !DEVELOPMENT.contains(&layer.name) {
        return Some("a production crate may use this crate only in tests that the table allows".to_owned());
    }
    match layer.may_use {
        MayUse::Everything => None,
        MayUse::Only(allowed) if allowed.contains(&name) => None,
        MayUse::Only([]) => Some("this layer may not depend on any workspace crate".to_owned()),
        MayUse::Only(allowed) => Some(format!("this layer may only depend on {}", allowed.join(", "))),
    }
}

/// The problem with a dependency on an external crate, if any. Dev-dependencies are not restricted.
fn external_problem(package: &Package, dependency: &Dependency) -> Option<String> {
    if dependency.kind.as_deref() == Some("dev") {
        return None;
    }
    let name = dependency.name.as_str();
    if WITHOUT_PROTOCOL.contains(&package.name.as_str()) && PROTOCOL.contains(&name) {
        return Some("this layer may not depend on AHP".to_owned());
    }
    if package.name != CORE {
        return None;
    }
    if !CORE_MAY_USE.contains(&name) {
        return Some(
            "core does no I/O; if this crate does no I/O, add it in xtask/src/tidy/edges.rs".to_owned(),
        );
    }
    let forbidden = (name == "tokio")
        .then(|| dependency.features.iter().find(|feature| !CORE_TOKIO_FEATURES.contains(&feature.as_str())))
        .flatten();
    forbidden.map(|feature| format!("core does no I/O and may not use the tokio feature `{feature}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workspace in which `from` depends on `to`, both workspace crates.
    fn workspace(from: &str, to: &str, kind: Option<&str>) -> Metadata {
        let dependency =
            Dependency { name: to.to_owned(), kind: kind.map(str::to_owned), features: Vec::new() };
        let package = |name: &str, dependencies| Package {
            id: name.to_owned(),
            name: name.to_owned(),
            dependencies,
            ..Package::default()
        };
        Metadata {
            packages: vec![package(from, vec![dependency]), package(to, Vec::new())],
            workspace_members: vec![from.to_owned(), to.to_owned()],
            ..Metadata::default()
        }
    }

    /// A workspace in which `from` depends on the external crate `to`.
    fn with_external(from: &str, to: &str, kind: Option<&str>, features: &[&str]) -> Metadata {
        let mut metadata = workspace(from, to, kind);
        metadata.workspace_members.pop();
        metadata.packages[0].dependencies[0].features = features.iter().map(ToString::to_string).collect();
        metadata
    }

    #[test]
    fn rejects_forbidden_edges() {
        for (from, to) in [
            ("innkeeper-gateway", "innkeeper-core"),
            ("innkeeper-claude", "innkeeper-core"),
            ("innkeeper-core", "innkeeper-server"),
            ("innkeeper-server", "innkeeper-agents"),
            ("innkeeper-agents", "innkeeper-gateway"),
            ("innkeeper-gateway", "innkeeper-gateway-check"),
            ("innkeeper-claude", "innkeeper-core-fakes"),
            ("innkeeper-testkit", "innkeeper-core"),
            ("innkeeper-core-fakes", "innkeeper-server"),
            ("innkeeper", "innkeeper-bench"),
            ("xtask", "innkeeper-claude"),
        ] {
            for kind in [None, Some("build"), Some("dev")] {
                let problems = check(&workspace(from, to, kind));
                assert_eq!(problems.len(), 1, "{from} -> {to} ({kind:?})");
                assert!(problems[0].starts_with(&format!("{from} -> {to}: ")), "{problems:?}");
            }
        }
    }

    #[test]
    fn accepts_allowed_edges() {
        for (from, to) in [
            ("innkeeper", "innkeeper-gateway"),
            ("innkeeper-server", "innkeeper-core"),
            ("innkeeper-agents", "innkeeper-claude"),
            ("innkeeper-bench", "innkeeper-server"),
            ("innkeeper-bench", "innkeeper-testkit"),
            ("innkeeper-core-fakes", "innkeeper-core"),
        ] {
            assert_eq!(check(&workspace(from, to, None)), [""; 0], "{from} -> {to}");
        }
    }

    #[test]
    fn crates_for_tests_are_allowed_as_dev_dependency_only() {
        for (from, to) in [
            ("innkeeper", "innkeeper-testkit"),
            ("innkeeper-store", "innkeeper-core-fakes"),
            ("innkeeper-server", "innkeeper-workspace"),
            ("innkeeper-claude", "innkeeper-gateway"),
        ] {
            let check = |kind| check(&workspace(from, to, kind)).len();
            assert_eq!((check(Some("dev")), check(None), check(Some("build"))), (0, 1, 1), "{from} -> {to}");
        }
    }

    #[test]
    fn rejects_crate_without_row() {
        let problems = check(&workspace("innkeeper-new", "innkeeper-core", None));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("innkeeper-new: crate without a layer"), "{problems:?}");
    }

    #[test]
    fn rejects_io_dependencies_of_core() {
        let check = |to, kind, features| check(&with_external("innkeeper-core", to, kind, features)).len();
        assert_eq!(check("reqwest", None, &[]), 1);
        assert_eq!(check("reqwest", Some("dev"), &[]), 0);
        assert_eq!(check("serde_json", None, &["raw_value"]), 0);
        assert_eq!(check("tokio", None, &["sync", "time"]), 0);
        assert_eq!(check("tokio", None, &["sync", "net"]), 1);
    }

    #[test]
    fn rejects_protocol_dependency_of_gateway() {
        let problems = check(&with_external("innkeeper-gateway", "ahp-types", None, &[]));
        assert_eq!(problems, ["innkeeper-gateway -> ahp-types: this layer may not depend on AHP"]);
    }
}
