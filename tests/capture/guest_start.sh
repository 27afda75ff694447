#!/bin/sh
# Inside a guest: start one loader for each list of devices, and return when all are attached.
#   guest_start.sh LOADER "DEVICE..." ["DEVICE..."]
# Each loader N writes /run/N.stream and stops when the process in /run/N.hold is ended.
set -e
loader=$1
shift
number=0
for devices in "$@"; do
    number=$((number + 1))
    words=
    for device in $devices; do
        words="$words --device $device"
    done
    mkfifo "/run/$number.control"
    sleep 3600 < /dev/null > "/run/$number.control" 2> /dev/null &
    echo $! > "/run/$number.hold"
    # shellcheck disable=SC2086 # the words are paths of devices
    /usr/bin/python3 "$loader" $words < "/run/$number.control" \
        > "/run/$number.stream" 2> "/run/$number.errors" &
    echo $! > "/run/$number.loader"
done
for loader in /run/*.loader; do
    while [ ! -s "${loader%.loader}.stream" ]; do
        kill -0 "$(cat "$loader")"
        sleep 0.2
    done
done
