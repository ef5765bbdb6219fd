package ledger_test

import (
	"errors"
	"flag"
	"os"
	"testing"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/test/ledgertest"
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

func TestLedgerKeepsItsLaws(t *testing.T) {
	ledgertest.Explore(t, check, ledgertest.World{})
}

func TestSlotsKeepTheLaws(t *testing.T) {
	ledgertest.Explore(t, check, ledgertest.World{Calm: true})
}

func TestDevicesKeepTheLaws(t *testing.T) {
	ledgertest.Explore(t, check, ledgertest.World{Calm: true, Devices: true})
}

func TestBudgetsKeepTheLaws(t *testing.T) {
	ledgertest.Explore(t, check, ledgertest.World{Calm: true, Limits: true})
}

func TestBudgetsInTurmoilKeepTheLaws(t *testing.T) {
	ledgertest.Explore(t, check, ledgertest.World{Limits: true})
}

// What DRA gives is counted by its claims, where the node leaves it to DRA.
func TestDRAKeepsTheLaws(t *testing.T) {
	ledgertest.Explore(t, check, ledgertest.World{Calm: true, DRA: true})
}

func check(l *ledger.Ledger) error { return errors.Join(l.CheckInvariants(), checkTotals(l)) }
