# What `scripts/run` and `scripts/test` have in common. To be sourced by bash with `root` set.
# shellcheck shell=bash

# One place for build products, also where a configuration file or the caller's folder would say otherwise.
case "${CARGO_TARGET_DIR:-}" in
  "") export CARGO_TARGET_DIR="$root/target" ;;
  /*) export CARGO_TARGET_DIR ;;
  *) export CARGO_TARGET_DIR="$PWD/$CARGO_TARGET_DIR" ;;
esac

# Messages are for a person, so they go to stderr; bold only on a terminal.
say() {
  if [ -t 2 ] && [ -z "${NO_COLOR:-}" ]; then
    printf '\033[1m• %s\033[0m\n' "$*" >&2
  else
    printf '• %s\n' "$*" >&2
  fi
}

# Runs a command in the project's folder, leaving the caller's folder as it is.
in_root() { (cd "$root" && "$@"); }
in_web() { (cd "$root/web" && "$@"); }

# Ends the script with a list of the programs that are missing and where they come from.
need_tools() {
  local tool missing=0
  for tool in "$@"; do
    command -v "$tool" >/dev/null 2>&1 && continue
    missing=1
    case "$tool" in
      cargo) say "cargo is missing: install Rust 1.95 or newer with rustup, or with your system's packages" ;;
      node) say "node is missing: install Node 20.19 or newer" ;;
      npm) say "npm is missing: it normally comes with Node; Debian has it as a package of its own" ;;
      *) say "$tool is missing: install it with your system's packages" ;;
    esac
  done
  [ "$missing" -eq 0 ] || exit 1
}

# The functions below say `|| return 1` because `set -e` does not hold in a function whose result is asked for.

# Installs the page's packages if the lock file changed since the last time.
install_page_packages() {
  local stamp="$root/web/node_modules/.package-lock.json"
  if [ ! -e "$stamp" ] || [ "$root/web/package-lock.json" -nt "$stamp" ]; then
    say "installing the page's packages"
    in_web npm ci --no-audit --no-fund >&2 || return 1
    # npm may keep the file's old time, and the next run would install again.
    touch "$stamp"
  fi
}

# Builds the page if a source is newer than the last build.
build_page() {
  local built="$root/web/dist/index.html"
  if [ -e "$built" ]; then
    local newer
    newer=$(find "$root/web" \( -name node_modules -o -name dist -o -name tests \) -prune \
      -o -type f -newer "$built" -print -quit)
    [ -n "$newer" ] || return 0
  fi
  install_page_packages || return 1
  say "building the page"
  in_web npm run --silent build >&2
}
