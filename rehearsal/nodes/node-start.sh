#!/bin/sh
# First process of a node: the rules are in force before init starts anything, then init takes its place.
set -eu
iptables-restore --noflush --wait 5 <<'RULES'
*mangle
:RIG-IN - [0:0]
:RIG-OUT - [0:0]
-A PREROUTING -i eth0 -j RIG-IN
-A POSTROUTING -o eth0 -j RIG-OUT
COMMIT
*nat
:RIG-DNAT - [0:0]
:RIG-SNAT - [0:0]
-A PREROUTING -j RIG-DNAT
-A OUTPUT -j RIG-DNAT
-A POSTROUTING -o eth0 -j RIG-SNAT
COMMIT
RULES
sh /opt/rehearsal/node-network.sh
cp /opt/rehearsal/node-cloud-init.cfg /etc/cloud/cloud.cfg.d/95_rehearsal.cfg
exec /sbin/init
