#!/usr/bin/env bash
# Makes .venv from the pins and finds Java 17 or newer, installing it where that is allowed.
#
# scripts/test and scripts/demo source this file; run alone, it only sets up. It leaves behind:
#   VENV                 the virtual environment
#   OMNIGRAPH_HAS_JAVA   1 or 0; with 1, JAVA_HOME points at a usable Java
#
# OMNIGRAPH_PYTHON=...   use this interpreter for a new .venv
# OMNIGRAPH_NO_JAVA=1    behave as on a machine that has no Java and cannot get it

set -euo pipefail

ROOT=$(CDPATH="" cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
# The tests start hundreds of processes: without compiled files each of them compiles the package again.
unset PYTHONDONTWRITEBYTECODE

VENV="$ROOT/.venv"
STAMP="$VENV/.omnigraph-setup"
APT_FAILED="$VENV/.omnigraph-apt-failed"

say() { printf '[setup] %s\n' "$*"; }
fail() {
    printf '[setup] error: %s\n' "$@" >&2
    exit 1
}

# --- Packages from apt, when we may --------------------------------------------------------------

apt_prefix() { # prints the command that gives us root, or fails
    command -v apt-get >/dev/null 2>&1 || return 1
    if [ "$(id -u)" = 0 ]; then
        echo "env"
    elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
        echo "sudo -n env"
    else
        return 1
    fi
}

apt_install() { # installs the first of the named packages that can be had
    local prefix apt package log why=""
    prefix=$(apt_prefix) || return 1
    apt="$prefix DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=0 -o Acquire::http::Timeout=20"
    say "asking apt-get for $1 (this changes the system)"
    $apt update >/dev/null 2>&1 || true # an old package list may still do
    for package in "$@"; do
        if log=$($apt install -y --no-install-recommends "$package" 2>&1); then
            say "installed $package"
            return 0
        fi
        why=${why:-$(tail -n 1 <<<"$log")}
    done
    say "apt-get could not: $why"
    return 1
}

# --- Python --------------------------------------------------------------------------------------

python_is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    local name
    # Each candidate is run, not just looked up: version managers leave names that start nothing.
    for name in ${OMNIGRAPH_PYTHON:+"$OMNIGRAPH_PYTHON"} python3.13 python3.12 python3.11 python3 python; do
        if python_is_new_enough "$name"; then
            command -v "$name"
            return 0
        fi
    done
    return 1
}

make_venv() {
    local python version
    python=$(find_python) || fail "Python 3.11 or newer was not found." \
        "Debian, Ubuntu: apt-get install python3.11 python3.11-venv   Fedora: dnf install python3.11" \
        "macOS: brew install python@3.11   or name one yourself: OMNIGRAPH_PYTHON=path scripts/test"
    version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    # Debian ships Python without the part that puts pip into a new environment.
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 && ! apt_install "$version-venv"; then
        fail "$python cannot make virtual environments: install the package $version-venv."
    fi
    say "making .venv with $python"
    "$python" -m venv --clear "$VENV"
}

fingerprint() { # what the installed packages depend on
    "$VENV/bin/python" - "$ROOT/pyproject.toml" "$ROOT/constraints.txt" <<'PY'
import hashlib
import pathlib
import sys

seen = hashlib.sha256(sys.version.encode())
for name in sys.argv[1:]:
    seen.update(pathlib.Path(name).read_bytes())
print(seen.hexdigest())
PY
}

install_packages() {
    local pip=("$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "$ROOT/constraints.txt")
    say "installing the pinned packages (some minutes the first time)"
    # The build tools come first and from the pins; building without isolation then needs no network.
    if ! { "${pip[@]}" hatchling setuptools &&
        "${pip[@]}" --no-build-isolation --editable "${ROOT}[spark,server,embed,otel,dev]"; }; then
        fail "the packages could not be installed; the reason is above." \
            "Without a network, only a set-up that was once completed can be used."
    fi
}

set_up_python() {
    local started=$SECONDS stamp
    stamp=$(cat "$STAMP" 2>/dev/null || true)
    # An environment that was moved or copied still starts the programs of the old place: make it anew.
    if ! python_is_new_enough "$VENV/bin/python" || [ "${stamp:+${stamp#* }}" != "${stamp:+$ROOT}" ]; then
        make_venv
    elif [ "$stamp" = "$(fingerprint) $ROOT" ]; then
        return 0
    fi
    rm -f "$STAMP"
    install_packages
    echo "$(fingerprint) $ROOT" >"$STAMP"
    say "Python is ready ($((SECONDS - started)) s)"
}

# --- Java ----------------------------------------------------------------------------------------

java_home_of() { # prints the home of a java command when it is 17 or newer
    local properties home major
    properties=$("$1" -XshowSettings:properties -version 2>&1) || return 1
    home=$(sed -n 's/^ *java\.home = //p' <<<"$properties")
    major=$(sed -n 's/^ *java\.specification\.version = //p' <<<"$properties")
    [ -n "$home" ] && [ "${major%%.*}" -ge 17 ] 2>/dev/null && echo "$home"
}

find_java() {
    local java
    # Spark looks at JAVA_HOME and PATH only; an installed Java is often at neither.
    for java in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} "$(command -v java || true)" \
        /usr/lib/jvm/*17*/bin/java /usr/lib/jvm/*21*/bin/java /usr/lib/jvm/*/bin/java \
        "$(/usr/libexec/java_home -v 17+ 2>/dev/null || true)/bin/java" \
        /opt/homebrew/opt/openjdk*/bin/java /usr/local/opt/openjdk*/bin/java; do
        [ -x "$java" ] && java_home_of "$java" && return 0
    done
    return 1
}

install_java() {
    # Do not ask again on every run: that would make each of them slow.
    [ -z "$(find "$APT_FAILED" -mmin -60 2>/dev/null)" ] || return 1
    apt_prefix >/dev/null || return 1
    apt_install openjdk-17-jre-headless openjdk-21-jre-headless && return 0
    touch "$APT_FAILED"
    return 1
}

set_up_java() {
    local home=""
    export OMNIGRAPH_HAS_JAVA=0
    if [ "${OMNIGRAPH_NO_JAVA:-0}" = 1 ]; then
        # A home that does not exist also hides the Java on PATH from Spark.
        export JAVA_HOME="$VENV/no-java"
    elif home=$(find_java) || { install_java && home=$(find_java); }; then
        export JAVA_HOME="$home" OMNIGRAPH_HAS_JAVA=1
        return 0
    fi
    say "no Java 17 or newer: what needs Spark is left out. To have it, install Java and run this again:"
    say "  Debian, Ubuntu: sudo apt-get install openjdk-17-jre-headless (or openjdk-21-jre-headless)"
    say "  Fedora, RHEL:   sudo dnf install java-17-openjdk-headless (or java-21-openjdk-headless)"
    say "  macOS:          brew install openjdk@17"
    say "  elsewhere:      any Java 17 or newer, with JAVA_HOME set to its folder"
}

set_up_python
set_up_java
