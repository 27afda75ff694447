#!/bin/sh
# Inside a guest: start one loader for each list of devices, and return when all are attached.
#   guest_start.sh LOADER "DEVICE..." ["DEVICE..."]
# Each loader N writes /root/N.stream and stops when the process in /root/N.hold is ended.
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
    mkfifo "/root/$number.control"
    sleep 3600 < /dev/null > "/root/$number.control" 2> /dev/null &
    echo $! > "/root/$number.hold"
    # shellcheck disable=SC2086 # the words are paths of devices
    /usr/bin/python3 "$loader" $words < "/root/$number.control" \
        > "/root/$number.stream" 2> "/root/$number.errors" &
    echo $! > "/root/$number.loader"
done
for loader in /root/*.loader; do
    while [ ! -s "${loader%.loader}.stream" ]; do
        kill -0 "$(cat "$loader")"
        sleep 0.2
    done
done
