#!/bin/sh
# Brings what pip cannot: a Python with venv, a C compiler, the original beanstalkd and bunqueue, wrk.
#
#   tools/bootstrap.sh python        print a Python >= 3.11 that can make environments, or fail
#   tools/bootstrap.sh compiler      see to a C compiler and Python.h; going without is no failure
#   tools/bootstrap.sh beanstalkd    see to beanstalkd for the tests; going without is no failure
#   tools/bootstrap.sh bunqueue      see to bunqueue for the tests; going without is no failure
#   tools/bootstrap.sh wrk           see to wrk for tests and benchmark; going without is no failure
#
# Debian packages are installed only as root or where sudo asks nothing. JOBYARD_APT=0 forbids it.
# npm packages go into build/npm, nothing is installed for the machine. JOBYARD_NPM=0 forbids it.
# PYTHON names the interpreter to use. Speaks on stderr, one line for each thing it did or lacks.
set -eu

say() {
    echo "jobyard: $*" >&2
}

apt() {
    timeout 300 "$@" -o DPkg::Lock::Timeout=60 -o Acquire::Retries=1 >/dev/null 2>&1
}

# Runs apt-get with the words given; a second time after an update, for machines with no lists yet.
with_lists() {
    apt "$@" && return 0
    # shellcheck disable=SC2086  # an empty $as_root must vanish
    apt $as_root apt-get update || return 1
    apt "$@"
}

find_root() {
    as_root=""
    [ "${JOBYARD_APT:-1}" != 0 ] && command -v apt-get >/dev/null || return 1
    [ "$(id -u)" = 0 ] && return 0
    as_root="sudo -n"
    command -v sudo >/dev/null && sudo -n true 2>/dev/null
}

install_packages() {
    find_root || return 1
    say "installing Debian packages: $*"
    # shellcheck disable=SC2086
    with_lists $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "$@"
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

can_make_environments() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null
}

find_python() {
    for name in ${PYTHON:-python3 python3.11 python3.12 python3.13 python3.14}; do
        if command -v "$name" >/dev/null && is_new_enough "$name"; then
            command -v "$name"
            return 0
        fi
    done
    return 1
}

see_to_python() {
    python=$(find_python) || {
        install_packages python3 python3-venv && python=$(find_python)
    } || {
        say "Python 3.11 or newer is needed; install it or name one: make PYTHON=/path/to/python3"
        exit 1
    }
    can_make_environments "$python" || {
        install_packages python3-venv && can_make_environments "$python"
    } || {
        say "$python cannot make virtual environments: apt-get install python3-venv"
        exit 1
    }
    echo "$python"
}

has_compiler() {
    python=$(find_python) || return 1
    include=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
    # CC may hold arguments too.
    # shellcheck disable=SC2086
    echo '#include <Python.h>' | ${CC:-cc} "-I$include" -fsyntax-only -x c - 2>/dev/null
}

see_to_compiler() {
    has_compiler && return 0
    # A compiler named by hand, or none wanted: nothing to add. setup.py says what it is missing.
    [ -z "${CC:-}" ] && [ "${JOBYARD_COMPILE:-1}" != 0 ] || return 0
    install_packages gcc libc6-dev python3-dev || true
}

# Unpacked beside the build instead of installed: that needs no root, and the package would start
# a service on the very port Jobyard listens on.
see_to_beanstalkd() {
    folder=build/debian
    command -v beanstalkd >/dev/null && return 0
    [ -x "$folder/usr/bin/beanstalkd" ] && return 0
    find_root || as_root=false # no lists can be fetched, those that are there will do
    mkdir -p "$folder"
    if [ "${JOBYARD_APT:-1}" != 0 ] && command -v apt-get >/dev/null &&
        (cd "$folder" && with_lists apt-get download beanstalkd && dpkg -x beanstalkd_*.deb .) &&
        "$folder/usr/bin/beanstalkd" -v >/dev/null 2>&1; then
        say "unpacked the Debian package beanstalkd into $folder for the tests"
    else
        say "beanstalkd is not here and cannot be fetched: comparisons with it are skipped"
    fi
}

# As above. Its library lies beside it, where the loader does not look: a script tells it to. The
# script comes last, so that a run that was cut short is not taken for done.
see_to_wrk() {
    folder=build/debian
    command -v wrk >/dev/null && return 0
    [ -x "$folder/usr/bin/wrk" ] && return 0
    find_root || as_root=false
    mkdir -p "$folder/wrk"
    if [ "${JOBYARD_APT:-1}" != 0 ] && command -v apt-get >/dev/null &&
        (cd "$folder/wrk" && with_lists apt-get download wrk libluajit-5.1-2 &&
            for package in *.deb; do dpkg -x "$package" . || exit 1; done) &&
        library=$(find "$PWD/$folder/wrk" -name 'libluajit-5.1.so.2') && [ -n "$library" ]; then
        mkdir -p "$folder/usr/bin"
        cat >"$folder/usr/bin/wrk" <<END
#!/bin/sh
LD_LIBRARY_PATH='$(dirname "$library")' exec '$PWD/$folder/wrk/usr/bin/wrk' "\$@"
END
        chmod +x "$folder/usr/bin/wrk"
        say "unpacked the Debian package wrk into $folder for tests and benchmark"
    else
        say "wrk is not here and cannot be fetched: tests and benchmark leave out what needs it"
    fi
}

# The runtime is among npm's optional packages, one for each kind of machine: the first that runs.
find_bun() {
    for bun in "$1"/node_modules/@oven/bun-*/bin/bun; do
        if "$bun" --version >/dev/null 2>&1; then
            echo "$bun"
            return 0
        fi
    done
    return 1
}

# No script of a package runs: those needed here work without.
fetch_packages() {
    timeout 300 npm install --prefix "$1" --ignore-scripts --no-package-lock --no-audit --no-fund \
        --fetch-retries=1 --fetch-retry-mintimeout=1000 >/dev/null 2>&1
}

# The link to the runtime comes last, so that a run that was cut short is not taken for done.
see_to_bunqueue() {
    folder=build/npm
    wanted=tests/acceptance/npm/package.json
    [ -x "$folder/bin/bun" ] && cmp -s "$wanted" "$folder/package.json" && return 0
    rm -rf "$folder"
    if [ "${JOBYARD_NPM:-1}" = 0 ] || ! command -v npm >/dev/null; then
        say "bunqueue is not here and there is no npm to fetch it: tests with it are skipped"
        return 0
    fi
    mkdir -p "$folder/bin"
    cp "$wanted" "$folder/package.json"
    if fetch_packages "$folder" && bun=$(find_bun "$folder"); then
        ln -s "../${bun#"$folder"/}" "$folder/bin/bun"
        say "installed the npm packages bunqueue and bun into $folder for the tests"
    else
        say "bunqueue is not here and cannot be fetched: tests with it are skipped"
    fi
}

cd "$(dirname "$0")/.."
case "${1:-}" in
python) see_to_python ;;
compiler) see_to_compiler ;;
beanstalkd) see_to_beanstalkd ;;
bunqueue) see_to_bunqueue ;;
wrk) see_to_wrk ;;
*)
    say "usage: tools/bootstrap.sh python|compiler|beanstalkd|bunqueue|wrk"
    exit 2
    ;;
esac
