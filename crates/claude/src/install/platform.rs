//! The native package for this machine.
//!
//! Owns the mapping from Rust platform names to package names, and the detection of the C library. The C
//! library of the machine counts, not the one of this binary, which may be linked statically.

use std::fmt;
use std::path::Path;

use super::error::InstallError;

/// The platform suffix of a native package name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Platform {
    os: &'static str,
    arch: &'static str,
    libc: Libc,
}

/// The C library of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Libc {
    /// The one supported by the default package of the platform.
    Usual,
    /// musl, which has separate packages.
    Musl,
}

impl Platform {
    /// The platform of this process.
    pub(super) fn current() -> Result<Self, InstallError> {
        Self::named(std::env::consts::OS, std::env::consts::ARCH, Path::new("/"))
    }

    /// The platform for Rust's names `os` and `arch`, with the file system root `root`.
    fn named(os: &str, arch: &str, root: &Path) -> Result<Self, InstallError> {
        let unsupported = || InstallError::UnsupportedPlatform { platform: format!("{os} on {arch}") };
        let (arch, triple_arch) = match arch {
            "x86_64" => ("x64", "x86_64"),
            "aarch64" => ("arm64", "aarch64"),
            _ => return Err(unsupported()),
        };
        let (os, libc) = match os {
            "linux" => ("linux", libc_below(root, triple_arch)),
            "macos" => ("darwin", Libc::Usual),
            _ => return Err(unsupported()),
        };
        Ok(Self { os, arch, libc })
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = match self.libc {
            Libc::Usual => "",
            Libc::Musl => "-musl",
        };
        write!(f, "{}-{}{suffix}", self.os, self.arch)
    }
}

/// Detects the C library by the dynamic loaders present.
///
/// A machine with both loaders is a glibc system with musl installed, unless its glibc loader is the
/// compatibility layer of a musl distribution.
fn libc_below(root: &Path, arch: &str) -> Libc {
    let glibc = ["lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1"]
        .iter()
        .any(|loader| is_glibc_loader(&root.join(loader)));
    if !glibc && root.join(format!("lib/ld-musl-{arch}.so.1")).exists() { Libc::Musl } else { Libc::Usual }
}

/// Whether the file exists and is not a link to a compatibility layer.
fn is_glibc_loader(path: &Path) -> bool {
    path.canonicalize().is_ok_and(|real| {
        let name = real.file_name().unwrap_or_default().to_string_lossy();
        !name.contains("gcompat") && !name.contains("musl")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root folder with these empty files.
    fn root(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        root
    }

    #[test]
    fn package_name_contains_system_processor_and_c_library() {
        let glibc = root(&["lib64/ld-linux-x86-64.so.2"]);
        let both = root(&["lib64/ld-linux-x86-64.so.2", "lib/ld-musl-x86_64.so.1"]);
        let musl = root(&["lib/ld-musl-x86_64.so.1", "lib/ld-musl-aarch64.so.1"]);
        let none = root(&[]);
        for (os, arch, root, expected) in [
            ("linux", "x86_64", &glibc, "linux-x64"),
            ("linux", "x86_64", &both, "linux-x64"),
            ("linux", "x86_64", &none, "linux-x64"),
            ("linux", "x86_64", &musl, "linux-x64-musl"),
            ("linux", "aarch64", &musl, "linux-arm64-musl"),
            ("macos", "aarch64", &none, "darwin-arm64"),
            ("macos", "x86_64", &none, "darwin-x64"),
        ] {
            let platform = Platform::named(os, arch, root.path()).unwrap();
            assert_eq!(platform.to_string(), expected);
        }
    }

    #[test]
    fn detects_musl_despite_compatibility_loader() {
        let root = root(&["lib/ld-musl-x86_64.so.1", "lib/libgcompat.so.0"]);
        std::fs::create_dir(root.path().join("lib64")).unwrap();
        std::os::unix::fs::symlink(
            root.path().join("lib/libgcompat.so.0"),
            root.path().join("lib64/ld-linux-x86-64.so.2"),
        )
        .unwrap();
        let platform = Platform::named("linux", "x86_64", root.path()).unwrap();
        assert_eq!(platform.to_string(), "linux-x64-musl");
    }

    #[test]
    fn error_names_the_unsupported_platform() {
        let error = Platform::named("freebsd", "riscv64", Path::new("/")).unwrap_err();
        assert!(error.to_string().contains("freebsd on riscv64"), "{error}");
    }
}
