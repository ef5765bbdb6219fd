package debugger

import (
	"context"
	"os"

	"github.com/sirupsen/logrus"

	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// Server tells of the account of the server it is part of. All fields are needed.
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
	found, err := s.Diff(ctx)
	if err != nil {
		s.Log.WithError(err).Error("debug diff: the account could not be compared with the cluster")
		return
	}
	for i := range found.Differences {
		s.Log.Warn("debug diff: " + found.Differences[i].String())
	}
	if found.More > 0 {
		s.Log.WithField("more", found.More).Warn("debug diff: more differences are not logged one by one")
	}
	s.Log.WithFields(logrus.Fields{"compared": found.Compared, "differences": len(found.Differences) + found.More}).
		Info("debug diff: done")
}
