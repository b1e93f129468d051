"""Each measured scenario of the kernel's drivers has contract tests. A test has the scenario's name
in CamelCase (`disc_active`: a suite or test with DiscActive in its name). For a suite of another
name, this table has the scenario."""

import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import emulated  # noqa: E402
from emulated import Failure  # noqa: E402

# The names in the measurements of rdma_rxe and siw.
BY_NAME = ("addr_change_bond_default_failover_mac arpfail backlog bind destroy_unacked disc_active "
           "disc_destroy disc_passive disc_traffic kill_client kill_server migrate noaccept "
           "nolistener noqp notify priv reject rep_timeout resolve sync ud ud_noaccept unreach "
           "unreach_host unreach_retry0").split()
BY_TABLE = {
    "addr_change": ("MovedAddress.IsToldToEachIdThatIsBoundToItInTheOrderTheyGotTheirDevice",
                    "ChangingPort.AnAddressThatGoesLeavesIdsAlone"),
    "after_removal": ("DeviceRemoval.ADeviceThatReturnsServesNewIds",),
    "async": ("async_event_test", "MeasuredCalls.WithNothingToTellNoEventComesFromConnectingOrFailing"),
    "cq": ("cq_test",),
    "depth": ("qp_state_test", "MeasuredCalls.PiecesAndInlineDataShareTheirRoom"),
    "errs": ("errors_test",),
    "errs2": ("MeasuredVerbs.AnRkeyOfAnotherPdGivesNoAccess",
              "MeasuredVerbs.AnLkeyOfAnotherPdIsALocalError"),
    "flush": ("MeasuredVerbs.GoingFromInitToErrorFlushesTheReceives",
              "MeasuredVerbs.ADestroyedQpFlushesNothing"),
    "limits": ("qp_state_test", "MeasuredCalls.TablesEndWithTheirOwnErrors"),
    "mcast": ("cm_multicast_test", "SiwCalls.McastIsNotImplemented"),
    "mr": ("pd_mr_test",),
    "netdev_down": ("ChangingPort.ItsStateIsWhatQueryPortSays",
                    "ChangingPort.ConnectionManagementHasNoEventForIt",
                    "ChangingPort.ASendWhileItIsDownFailsAndTakesTheQpWithIt",
                    "ChangingPort.AnAddressIsAGidAsLongAsItIsThere",
                    "ChangingPort.OfAnRnicEndsItsConnections"),
    "removal": ("cm_removal_test", "DeviceRemoval.OfAnRnicFlushesItsQueuePairs"),
    "retry": ("MeasuredVerbs.SevenRetriesWaitForEver",),
    "rnr": ("errors_test",),
    "trans": ("qp_state_test", "MeasuredVerbs.AQpInRtrReceivesAndStaysThere"),
    "wc": ("MeasuredVerbs.TheSendersCompletionTellsLengthAndImmediateOfEveryOperation",),
}


def tests_there():
    """Returns the names of all tests, and of the files that contain them."""
    names, files = set(), set()
    for file in sorted(os.listdir(HERE)):
        if not file.endswith("_test.cc"):
            continue
        with open(os.path.join(HERE, file)) as source:
            found = re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", source.read(), re.M)
        names |= {".".join(one) for one in found}
        if found:
            files.add(file.removesuffix(".cc"))
    return names, files


def by_name(scenario, names):
    camel = "".join(part.capitalize() for part in scenario.split("_"))
    if not any(camel in name for name in names):
        raise Failure("no contract test has %s in its name" % camel)


def by_table(wanted, there):
    missing = [one for one in wanted if one not in there]
    if missing:
        raise Failure("there is no contract test, and no file of them, called %s" % ", ".join(missing))


def main():
    names, files = tests_there()
    cases = [(one, lambda one=one: by_name(one, names)) for one in BY_NAME]
    cases += [(one, lambda wanted=wanted: by_table(wanted, names | files))
              for one, wanted in sorted(BY_TABLE.items())]
    return emulated.run_cases("scenarios", cases)


if __name__ == "__main__":
    sys.exit(main())
