package debugger

import (
	"context"
	"os"

	"github.com/sirupsen/logrus"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// maxLogged is how many differences are logged one by one.
const maxLogged = 1000

// Server writes the account of a server to its log when it is told to. All fields are needed.
type Server struct {
	API    API
	Ledger ledger.Reader
	// About says what the account is complete in, and Dump is the whole account.
	About, Dump func() reserver.DumpAnswer
	Log         logrus.FieldLogger
}

// Run writes the account to the log, and how it differs from the cluster, at each signal until ctx ends.
func (s *Server) Run(ctx context.Context, signals <-chan os.Signal) error {
	for {
		select {
		case <-signals:
			s.log(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// log is one line for each thing in the account, and one for each difference.
func (s *Server) log(ctx context.Context) {
	dump := s.Dump()
	for line := range lines(&dump) {
		s.Log.Info("debug dump: " + line)
	}
	report, err := Compare(ctx, s.API, func(context.Context) (*Account, error) {
		return &Account{Ledger: s.Ledger, DumpAnswer: s.About()}, nil
	})
	if err != nil {
		s.Log.WithError(err).Error("debug diff: the account could not be compared with the cluster")
		return
	}
	for i := range report.Differences {
		if i == maxLogged {
			s.Log.WithField("more", len(report.Differences)-i).Warn("debug diff: more differences are not logged one by one")
			break
		}
		s.Log.Warn("debug diff: " + report.Differences[i].String())
	}
	s.Log.WithFields(logrus.Fields{"compared": report.Compared, "differences": len(report.Differences)}).Info("debug diff: done")
}
