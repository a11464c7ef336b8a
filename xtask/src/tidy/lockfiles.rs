//! Checks of lock files: the number of packages, and no registry addresses.

use serde_json::Value;

/// Maximum number of packages in Cargo.lock; each must be trusted and compiled.
const MAX_PACKAGES: usize = 550;

/// Checks the size of Cargo.lock.
pub(super) fn check_budget(lock: &str) -> Option<String> {
    let packages = lock.lines().filter(|line| *line == "[[package]]").count();
    (packages > MAX_PACKAGES).then(|| {
        format!("Cargo.lock: {packages} packages exceed the maximum of {MAX_PACKAGES}; remove dependencies")
    })
}

/// Checks that an npm lock file contains no registry addresses, which differ between machines.
pub(super) fn check_npm(path: &str, lock: &str) -> Vec<String> {
    let parsed: Value = match serde_json::from_str(lock) {
        Ok(parsed) => parsed,
        Err(error) => return vec![format!("{path}: invalid JSON ({error})")],
    };
    let packages = parsed.get("packages").and_then(Value::as_object);
    let resolved = packages.into_iter().flatten().filter(|(_, package)| {
        let address = package.get("resolved").and_then(Value::as_str);
        address.is_some_and(|address| address.contains("://"))
    });
    resolved
        .map(|(name, _)| {
            format!("{path}: `{name}` has an address; run `npm install --omit-lockfile-registry-resolved`")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_more_than_maximum_packages() {
        assert_eq!(check_budget(&"[[package]]\nname = \"a\"\n".repeat(550)), None);
        assert!(check_budget(&"[[package]]\n".repeat(551)).unwrap().contains("551 packages"));
    }

    #[test]
    fn rejects_addresses_in_npm_lock() {
        let lock = r#"{ "packages": {
            "": { "name": "page" },
            "node_modules/a": { "version": "1.0.0", "integrity": "sha512-x" },
            "node_modules/b": { "version": "1.0.0", "resolved": "https://somewhere.test/b.tgz" },
            "node_modules/c": { "resolved": "../c", "link": true }
        } }"#;
        let problems = check_npm("web/package-lock.json", lock);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with("web/package-lock.json: `node_modules/b` has an address"));
    }

    #[test]
    fn rejects_invalid_npm_lock() {
        assert_eq!(check_npm("package-lock.json", "{").len(), 1);
    }
}
