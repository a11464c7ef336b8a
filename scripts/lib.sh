# Functions shared by the scripts. Sourced by bash with `root` set.
# shellcheck shell=bash

# Use one target directory, regardless of cargo's configuration files and the caller's directory.
case "${CARGO_TARGET_DIR:-}" in
  "") export CARGO_TARGET_DIR="$root/target" ;;
  /*) export CARGO_TARGET_DIR ;;
  *) export CARGO_TARGET_DIR="$PWD/$CARGO_TARGET_DIR" ;;
esac

# Prints a message to stderr; bold on a terminal.
say() {
  if [ -t 2 ] && [ -z "${NO_COLOR:-}" ]; then
    printf '\033[1m• %s\033[0m\n' "$*" >&2
  else
    printf '• %s\n' "$*" >&2
  fi
}

# Runs a command in the repository, without changing the caller's directory.
in_root() { (cd "$root" && "$@"); }
in_web() { (cd "$root/web" && "$@"); }

# Exits with installation hints if any of the programs is missing.
need_tools() {
  local tool missing=0
  for tool in "$@"; do
    command -v "$tool" >/dev/null 2>&1 && continue
    missing=1
    case "$tool" in
      cargo) say "cargo is missing: install Rust 1.95 or newer with rustup or your package manager" ;;
      node) say "node is missing: install Node 20.19 or newer" ;;
      npm) say "npm is missing: it usually comes with Node; on Debian it is a separate package" ;;
      *) say "$tool is missing: install it with your package manager" ;;
    esac
  done
  [ "$missing" -eq 0 ] || exit 1
}

# Prints the path of an installed browser.
find_browser() {
  local candidate
  for candidate in "${CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable; do
    if [ -n "$candidate" ] && command -v "$candidate" 2>/dev/null; then return 0; fi
  done
  return 1
}

# The functions below need `|| return 1`, because bash ignores `set -e` in a function whose result is tested.

# Installs the page's npm packages if the lock file has changed.
install_page_packages() {
  local stamp="$root/web/node_modules/.package-lock.json"
  if [ ! -e "$stamp" ] || [ "$root/web/package-lock.json" -nt "$stamp" ]; then
    say "installing the page's npm packages"
    in_web npm ci --no-audit --no-fund >&2 || return 1
    # npm may keep the file's old modification time, which would cause another install.
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
