"""This project's fields and tshark's, and the places of CM fields by IBTA's tables 106 to 120. They
are written by hand from the specification and from tshark's own list (tshark -G fields). Neither
side of the comparison is derived from the other."""

# This project's name of each opcode and tshark's name in the Info column.
OPCODES = {
    "RC SEND First": "RC Send First",
    "RC SEND Middle": "RC Send Middle",
    "RC SEND Last": "RC Send Last",
    "RC SEND Last with Immediate": "RC Send Last Immediate",
    "RC SEND Only": "RC Send Only",
    "RC SEND Only with Immediate": "RC Send Only Immediate",
    "RC WRITE First": "RC RDMA Write First",
    "RC WRITE Middle": "RC RDMA Write Middle",
    "RC WRITE Last": "RC RDMA Write Last",
    "RC WRITE Last with Immediate": "RC RDMA Write Last Immediate",
    "RC WRITE Only": "RC RDMA Write Only",
    "RC WRITE Only with Immediate": "RC RDMA Write Only Immediate",
    "RC READ Request": "RC RDMA Read Request",
    "RC READ Response First": "RC RDMA Read Response First",
    "RC READ Response Middle": "RC RDMA Read Response Middle",
    "RC READ Response Last": "RC RDMA Read Response Last",
    "RC READ Response Only": "RC RDMA Read Response Only",
    "RC Acknowledge": "RC Acknowledge",
    "RC ATOMIC Acknowledge": "RC Atomic Acknowledge",
    "RC CmpSwap": "RC Compare Swap",
    "RC FetchAdd": "RC Fetch Add",
    "RC SEND Last with Invalidate": "RC Send Last Invalidate",
    "RC SEND Only with Invalidate": "RC Send Only Invalidate",
    "UC SEND First": "UC Send First",
    "UC SEND Middle": "UC Send Middle",
    "UC SEND Last": "UC Send Last",
    "UC SEND Last with Immediate": "UC Send Last Immediate",
    "UC SEND Only": "UC Send Only",
    "UC SEND Only with Immediate": "UC Send Only Immediate",
    "UC WRITE First": "UC RDMA Write First",
    "UC WRITE Middle": "UC RDMA Write Middle",
    "UC WRITE Last": "UC RDMA Write Last",
    "UC WRITE Last with Immediate": "UC RDMA Write Last Immediate",
    "UC WRITE Only": "UC RDMA Write Only",
    "UC WRITE Only with Immediate": "UC RDMA Write Only Immediate",
    "UD SEND Only": "UD Send Only",
    "UD SEND Only with Immediate": "UD Send Only Immediate",
}

# The headers of every packet: this project's field, tshark's.
HEADERS = {
    "time": "frame.time_epoch",
    "ipv4.source": "ip.src",
    "ipv4.destination": "ip.dst",
    "ipv6.source": "ipv6.src",
    "ipv6.destination": "ipv6.dst",
    "udp.source_port": "udp.srcport",
    "udp.destination_port": "udp.dstport",
    "bth.opcode": "infiniband.bth.opcode",
    "bth.solicited": "infiniband.bth.se",
    "bth.mig_req": "infiniband.bth.m",
    "bth.pad_bytes": "infiniband.bth.padcnt",
    "bth.version": "infiniband.bth.tver",
    "bth.pkey": "infiniband.bth.p_key",
    "bth.destination_qpn": "infiniband.bth.destqp",
    "bth.ack_request": "infiniband.bth.a",
    "bth.psn": "infiniband.bth.psn",
    "deth.qkey": "infiniband.deth.q_key",
    "deth.source_qpn": "infiniband.deth.srcqp",
    "reth.remote_address": "infiniband.reth.va",
    "reth.rkey": "infiniband.reth.r_key",
    "reth.dma_length": "infiniband.reth.dmalen",
    "atomic_eth.swap_add": "infiniband.atomiceth.swapdt",
    "atomic_eth.compare": "infiniband.atomiceth.cmpdt",
    "aeth.syndrome": "infiniband.aeth.syndrome",
    "aeth.msn": "infiniband.aeth.msn",
    "atomic_ack_eth.original": "infiniband.atomicacketh.origremdt",
    "imm.immediate": "infiniband.immdt",
    "ieth.invalidate_rkey": "infiniband.ieth",
    "payload": "data.data",  # including its padding
    "icrc": "infiniband.invariant.crc",
    "mad.transaction_id": "infiniband.mad.transactionid",
    "mad.attribute_modifier": "infiniband.mad.attributemodifier",
    "rdma_cm.port_space": "infiniband.cm.req.serviceid.protocol",
    "rdma_cm.port": "infiniband.cm.req.serviceid.dport",
    "rdma_cm.version": "infiniband.cm.req.ip_cm.majv",
    "rdma_cm.ip_version": "infiniband.cm.req.ip_cm.ipv",
    "rdma_cm.source_port": "infiniband.cm.req.ip_cm.sport",
    "rdma_cm.source_ipv4": "infiniband.cm.req.ip_cm.sip4",
    "rdma_cm.destination_ipv4": "infiniband.cm.req.ip_cm.dip4",
    "rdma_cm.source_ipv6": "infiniband.cm.req.ip_cm.sip6",
    "rdma_cm.destination_ipv6": "infiniband.cm.req.ip_cm.dip6",
    "rdma_cm.private_data": "infiniband.cm.req.ip_cm.private",
}

# Fixed values of every packet and every MAD: tshark's field and its value.
ALWAYS = {"udp.checksum.status": 1, "infiniband.bth.reserved7": 0}
ALWAYS_IPV4 = {"ip.checksum.status": 1, "ip.id": 0, "ip.flags.df": 1}
ALWAYS_MAD = {
    "infiniband.mad.baseversion": 1,
    "infiniband.mad.mgmtclass": 7,
    "infiniband.mad.classversion": 2,
    "infiniband.mad.method": 3,
    "infiniband.mad.status": 0,
    "infiniband.mad.classspecific": 0,
}

# Fields that tshark 4.0 does not show, and the reason. Fields of CM messages are read by their
# place from tshark's bytes of the message (infiniband.mad.data). The others have no test here.
NO_DISSECTOR = "tshark says 'Dissector Not Implemented' of this message"
ECE = "the vendor id of ECE is newer than tshark, which has it among reserved bytes"
READS_ONE_BYTE = "tshark 4.0 takes it from the first byte of the flow label, in the kernel's REQs too"
NOT_SHOWN = {
    "LAP, APR": "not spoken: ParseCm refuses them by name, as cm_message_test has it",
    "BTH FECN, BECN": "always 0 here; tshark has no field for their byte in RoCE",
    "IPv4 TOS, TTL; IPv6 traffic class, flow label, hop limit": "the socket's, not the packet's",
    "upper 12 bytes of a REQ's primary GIDs over IPv4": "tshark shows them as IPv4 addresses",
    "lower 8 bits of a REQ's flow labels": "tshark 4.0 shows the upper 12 of 20",
    "rdma_cm's header in a SIDR_REQ": NO_DISSECTOR,
}


def path(base, name, prefix):
    gid = "infiniband.cm.req.%s_%%sgid" % prefix
    field = "infiniband.cm.req.%s_" % prefix
    return [
        (base, 0, 16, name + ".local_lid", field + "locallid"),
        (base + 2, 0, 16, name + ".remote_lid", field + "remotelid"),
        (base + 4, 0, 128, name + ".local_gid", gid % "local"),
        (base + 20, 0, 128, name + ".remote_gid", gid % "remote"),
        (base + 36, 0, 20, name + ".flow_label", field + "flowlabel"),
        (base + 39, 2, 6, name + ".packet_rate", READS_ONE_BYTE),
        (base + 40, 0, 8, name + ".traffic_class", field + "tfcclass"),
        (base + 41, 0, 8, name + ".hop_limit", field + "hoplim"),
        (base + 42, 0, 4, name + ".service_level", field + "sl"),
        (base + 42, 4, 1, name + ".subnet_local", field + "subnetlocal"),
        (base + 43, 0, 5, name + ".local_ack_timeout", field + "localacktout"),
    ]


def fields(prefix, rows):
    """Adds the prefix to rows whose last item begins with a dot."""
    return [row[:4] + ((prefix + row[4][1:] if row[4].startswith(".") else row[4]),)
            for row in rows]


# By message: attribute id, tshark's Info, and the fields. A field is: byte after the MAD header,
# bit, width, this project's name, tshark's field (or why tshark has none).
CM = {
    "REQ": (0x10, "CM: ConnectRequest", fields("infiniband.cm.req.", [
        (0, 0, 32, "local_comm_id", "infiniband.cm.req"),
        (5, 0, 24, "vendor_id", ECE),
        (8, 0, 64, "service_id", ".serviceid"),
        (16, 0, 64, "local_ca_guid", ".localcaguid"),
        (28, 0, 32, "local_qkey", ".localqkey"),
        (32, 0, 24, "local_qpn", ".localqpn"),
        (35, 0, 8, "responder_resources", ".responderres"),
        (39, 0, 8, "initiator_depth", ".initdepth"),
        (43, 0, 5, "remote_cm_response_timeout", ".remoteresptout"),
        (43, 5, 2, "transport", ".transpsvctype"),
        (43, 7, 1, "end_to_end_flow_control", ".e2eflowctrl"),
        (44, 0, 24, "starting_psn", ".startpsn"),
        (47, 0, 5, "local_cm_response_timeout", ".localresptout"),
        (47, 5, 3, "retry_count", ".retrcount"),
        (48, 0, 16, "pkey", ".pkey"),
        (50, 0, 4, "path_mtu", ".pppmtu"),
        (50, 4, 1, "rdc_exists", ".rdcexist"),
        (50, 5, 3, "rnr_retry_count", ".rnrretrcount"),
        (51, 0, 4, "max_cm_retries", ".maxcmretr"),
        (51, 4, 1, "srq", ".srq"),
        (51, 5, 3, "extended_transport", ".ext_transport"),
        *path(52, "primary", "prim"),
        *path(96, "alternate", "alt"),
        (140, 0, 736, "private_data", ".private"),
    ])),
    "MRA": (0x11, "CM: MsgRcptAck", [
        (0, 0, 32, "local_comm_id", NO_DISSECTOR),
        (4, 0, 32, "remote_comm_id", NO_DISSECTOR),
        (8, 0, 2, "message", NO_DISSECTOR),
        (9, 0, 5, "service_timeout", NO_DISSECTOR),
        (10, 0, 1776, "private_data", NO_DISSECTOR),
    ]),
    "REJ": (0x12, "CM: ConnectReject", fields("infiniband.cm.rej.", [
        (0, 0, 32, "local_comm_id", ".localcommid"),
        (4, 0, 32, "remote_comm_id", ".remotecommid"),
        (8, 0, 2, "message", ".msgrej"),
        (9, 0, 7, "additional_info_bytes", ".rejinfolen"),
        (10, 0, 16, "reason", ".reason"),
        (12, 0, 576, "additional_info", ".ari"),
        (84, 0, 1184, "private_data", ".private"),
    ])),
    "REP": (0x13, "CM: ConnectReply", fields("infiniband.cm.rep.", [
        (0, 0, 32, "local_comm_id", "infiniband.cm.rep"),
        (4, 0, 32, "remote_comm_id", ".remotecommid"),
        (8, 0, 32, "local_qkey", ".localqkey"),
        (12, 0, 24, "local_qpn", ".localqpn"),
        (15, 0, 8, "vendor_id, upper byte", ECE),
        (16, 0, 24, "local_eecn", ".localeecn"),
        (19, 0, 8, "vendor_id, middle byte", ECE),
        (20, 0, 24, "starting_psn", ".startpsn"),
        (23, 0, 8, "vendor_id, lower byte", ECE),
        (24, 0, 8, "responder_resources", ".respres"),
        (25, 0, 8, "initiator_depth", ".initdepth"),
        (26, 0, 5, "target_ack_delay", ".tgtackdelay"),
        (26, 5, 2, "failover_accepted", ".failoveracc"),
        (26, 7, 1, "end_to_end_flow_control", ".e2eflowctrl"),
        (27, 0, 3, "rnr_retry_count", ".rnrretrcount"),
        (27, 3, 1, "srq", ".srq"),
        (28, 0, 64, "local_ca_guid", ".localcaguid"),
        (36, 0, 1568, "private_data", ".private"),
    ])),
    "RTU": (0x14, "CM: ReadyToUse", fields("infiniband.cm.rtu.", [
        (0, 0, 32, "local_comm_id", ".localcommid"),
        (4, 0, 32, "remote_comm_id", ".remotecommid"),
        (8, 0, 1792, "private_data", ".private"),
    ])),
    "DREQ": (0x15, "CM: DisconnectRequest", fields("infiniband.cm.dreq.", [
        (0, 0, 32, "local_comm_id", ".localcommid"),
        (4, 0, 32, "remote_comm_id", ".remotecommid"),
        (8, 0, 24, "remote_qpn", "infiniband.cm.req.remoteqpneecn"),  # tshark's name of the field
        (12, 0, 1760, "private_data", ".private"),
    ])),
    "DREP": (0x16, "CM: DisconnectReply", fields("infiniband.cm.drsp.", [
        (0, 0, 32, "local_comm_id", ".localcommid"),
        (4, 0, 32, "remote_comm_id", ".remotecommid"),
        (8, 0, 1792, "private_data", ".private"),
    ])),
    "SIDR_REQ": (0x17, "CM: ServiceIDResReq", [
        (0, 0, 32, "request_id", NO_DISSECTOR),
        (4, 0, 16, "pkey", NO_DISSECTOR),
        (8, 0, 64, "service_id", NO_DISSECTOR),
        (16, 0, 1728, "private_data", NO_DISSECTOR),
    ]),
    "SIDR_REP": (0x18, "CM: ServiceIDResReqResp", [
        (0, 0, 32, "request_id", NO_DISSECTOR),
        (4, 0, 8, "status", NO_DISSECTOR),
        (5, 0, 8, "additional_info_bytes", NO_DISSECTOR),
        (6, 0, 16, "vendor_id, upper bytes", NO_DISSECTOR),
        (8, 0, 24, "qpn", NO_DISSECTOR),
        (11, 0, 8, "vendor_id, lower byte", NO_DISSECTOR),
        (12, 0, 64, "service_id", NO_DISSECTOR),
        (20, 0, 32, "qkey", NO_DISSECTOR),
        (24, 0, 576, "additional_info", NO_DISSECTOR),
        (96, 0, 1088, "private_data", NO_DISSECTOR),
    ]),
}
