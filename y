#!/usr/bin/env bash
# Behind the two commands of the README:
#
#   ./x demo    builds hloom and shows it at work on a small example
#   ./x test    everything that has to hold before a change lands
#
# What is missing is installed where that is possible, and named where it is not. Needs Rust (rustup or a toolchain of at
# least the version in Cargo.toml).
set -euo pipefail
cd "$(dirname "$0")"

say() { printf '\n== %s\n' "$*"; }
die() { printf 'x: %s\n' "$*" >&2; exit 1; }

# Runs a package manager as root, if we are root or may become it without being asked.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo "$@"; else return 1; fi
}

need_rust() {
  if ! command -v cargo >/dev/null && [ -f "$HOME/.cargo/env" ]; then . "$HOME/.cargo/env"; fi
  command -v cargo >/dev/null || die "Rust is missing: see https://rustup.rs"
}

# Rust links through the system's C compiler.
need_linker() {
  command -v cc >/dev/null && return
  say "installing a C linker"
  if command -v apt-get >/dev/null; then
    as_root apt-get update -qq && as_root apt-get install -y -qq --no-install-recommends gcc libc6-dev
  fi
  command -v cc >/dev/null || die "a C linker is missing: install gcc or clang (Debian: apt-get install gcc libc6-dev)"
}

need_component() { # name, the cargo command it brings
  cargo "$2" --version >/dev/null 2>&1 && return
  say "installing $1"
  { command -v rustup >/dev/null && rustup component add "$1"; } || die "$1 is missing: rustup component add $1"
}

demo() {
  need_rust; need_linker
  say "building hloom"
  cargo build --release --quiet -p hloom
  local hloom example=examples/tensor_parallel_mlp.hlo
  hloom="$(cd "${CARGO_TARGET_DIR:-target}/release" && pwd)/hloom"
  local folder; folder="$(mktemp -d)"
  trap "rm -rf '$folder'" EXIT

  say "hloom verify $example"
  "$hloom" verify "$example"
  echo "well formed"
  say "hloom stats $example"
  "$hloom" stats "$example"
  say "hloom fmt $example   (the entry computation)"
  "$hloom" fmt "$example" | sed -n '/^ENTRY/,$p' | cut -c 1-150
  say "hloom run $example --seed 1   (four devices, the first numbers of each result)"
  "$hloom" run "$example" --seed 1 | cut -c 1-100
  say "hloom verify broken.hlo   (the same, with one number wrong)"
  sed 's/active = f32\[32,256\]/active = f32[32,265]/' "$example" >"$folder/broken.hlo"
  if (cd "$folder" && "$hloom" verify broken.hlo); then die "the broken module was accepted"; fi
}

test_all() {
  need_rust; need_linker
  need_component rustfmt fmt
  need_component clippy clippy
  say "formatting";      cargo fmt --all -- --check
  say "lints";           cargo clippy --workspace --all-targets --quiet -- -D warnings
  say "documentation";   RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --workspace --no-deps --document-private-items --quiet
  say "the small build"; cargo check --quiet -p hloom --no-default-features
  say "tests";           cargo test --workspace --quiet
  say "all is well"
}

case "${1:-}" in
  demo) demo ;;
  test) test_all ;;
  *) sed -n '2,7s/^# \{0,1\}//p' "$0"; [ -z "${1:-}" ] || exit 2 ;;
esac
