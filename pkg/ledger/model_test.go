package ledger_test

import (
	"errors"
	"flag"
	"os"
	"testing"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/test/ledgermodel"
)

// TestMain makes runs long enough for pods to be reserved, bound, removed and
// made anew. -rapid.steps and -rapid.checks ask for more.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.steps": "120", "rapid.checks": "100", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func TestLedgerAgreesWithModel(t *testing.T) {
	ledgermodel.AgreesWithModel(t, check, ledgermodel.World{})
}

func TestSlotsAgreeWithModel(t *testing.T) {
	ledgermodel.AgreesWithModel(t, check, ledgermodel.World{Calm: true})
}

func TestDevicesAgreeWithModel(t *testing.T) {
	ledgermodel.AgreesWithModel(t, check, ledgermodel.World{Calm: true, Devices: true})
}

func TestBudgetsAgreeWithModel(t *testing.T) {
	ledgermodel.AgreesWithModel(t, check, ledgermodel.World{Calm: true, Limits: true})
}

func TestBudgetsInTurmoilAgreeWithModel(t *testing.T) {
	ledgermodel.AgreesWithModel(t, check, ledgermodel.World{Limits: true})
}

// What DRA gives is counted by its claims, where the node leaves it to DRA.
func TestDRAAgreesWithModel(t *testing.T) {
	ledgermodel.AgreesWithModel(t, check, ledgermodel.World{Calm: true, DRA: true})
}

func check(l *ledger.Ledger) error { return errors.Join(l.CheckInvariants(), checkTotals(l)) }
