// The program's side of lanes (emulator/abi/send_lane.h): small SENDs between two programs without
// a host.
#pragma once

#include <cstdint>

#include "shim/verbs/objects.h"

namespace rdmaemu::shim {

// Waits until the queue pair's lane has room for `count` SENDs from slot `index` of the send ring
// on, if the permit covers them. Returns false if the host must execute all of them. The caller
// holds the send lock.
bool AwaitLane(QueuePair& qp, uint32_t index, uint32_t count);
// Adds the SENDs to the lane, after AwaitLane. The peer has the messages afterwards. Returns false
// if the host must execute all of them.
bool AddToLane(QueuePair& qp, uint32_t index, uint32_t count);

// Lets the peer add messages for new receives, if the host offers a lane. Call this after receives
// were posted. The caller holds the receive lock.
void GiveRoom(QueuePair& qp);

// Lets the peer of the queue pair with this number add messages again, if the host has opened its
// lane again. Call this for each queue pair with a completion from the ring, when it is consumed:
// the host opens a lane before it shows the completion of the message before. The caller holds the
// queue's lock.
void RenewLane(CompletionQueue& cq, uint32_t qp_num);

// Takes messages from the lanes of the queue's queue pairs. Returns how many completions are in
// `out`. Completions in the ring precede all messages: takes none while the ring has one. The
// caller holds the queue's lock.
int TakeFromLanes(CompletionQueue& cq, ibv_wc* out, int count);
// Waits until the messages that the host has taken from lanes are in the ring. A poll that may
// return more must look at the ring once more. The caller holds the queue's lock.
void AwaitMovedMessages(CompletionQueue& cq);
// Returns true if a lane of the queue may have a message. Any thread may call this.
bool MayHaveMessages(CompletionQueue& cq);

// Places the messages that are in lanes of the queue. They stay in their lanes. For fork(), with
// the mutex of payloads.h.
void PlaceFromLanes(CompletionQueue& cq, ProgramMemory& memory);
// Removes the lanes of a queue pair that the program destroys.
void ForgetLanes(QueuePair& qp);

}  // namespace rdmaemu::shim
