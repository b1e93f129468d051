// The kind of transport under test. Tests of connection management run on both kinds, InfiniBand's
// (RoCE) and iWARP's. A test of a rule that iWARP lacks is skipped there, with iWARP's behaviour as
// the reason: `if (IsIwarp()) GTEST_SKIP() << kEndsTogether;`. The siw_* tests hold iWARP's
// behaviour.
#pragma once

namespace rdma_contract {

// Returns whether the device under test is an RNIC.
bool IsIwarp();

// Connections.
inline constexpr char kNeedsQp[] =
    "iWARP: an id without a QP does not connect, so that nobody answers a reply by hand";
inline constexpr char kNoRtu[] =
    "iWARP: an accept establishes both sides; there is no third message that could be missing";
inline constexpr char kResets[] =
    "iWARP: a refusal is a reset: rdma_connect says so itself, or REJECTED with -ECONNRESET";
inline constexpr char kAsSent[] =
    "iWARP: private data arrive with the length that was sent, and have other limits";
inline constexpr char kNoQpNorRetries[] =
    "iWARP: a request names neither the peer's QP nor its retries";
inline constexpr char kEndsTogether[] =
    "iWARP: the end of one side is that of both and of their QPs; there is no timewait";
inline constexpr char kNoQpStates[] =
    "iWARP: the driver moves the QP, and siw tells no state of it";
inline constexpr char kNotifyForcesNothing[] =
    "iWARP: rdma_notify takes every event of an id with a connection, and forces nothing";
inline constexpr char kLinkEndsConnections[] =
    "iWARP: a link that goes down ends the connections over it";
// Addresses.
inline constexpr char kGidsAreMacs[] = "iWARP: a GID is the interface's MAC, no address";
inline constexpr char kNoPathRecord[] = "iWARP: a route has no path record";
inline constexpr char kOwnInitAttributes[] =
    "iWARP: rdma_init_qp_attr gives state, rights and port, whatever state is asked for";
inline constexpr char kLoopbackHasARoute[] =
    "iWARP: routes are IP's own, a loopback address has one; and the device may be another's";
// Features that iWARP lacks.
inline constexpr char kNoDatagrams[] = "iWARP: no UD queue pairs, and so no datagrams";
inline constexpr char kNoEce[] = "iWARP: no enhanced connection establishment";
inline constexpr char kNoRemoteErrors[] =
    "iWARP: the sender's work succeeds, and the peer's refusal ends the connection";

}  // namespace rdma_contract
