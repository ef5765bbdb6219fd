package debugger

import (
	"context"
	"net/http"
	"os"
	"sync"

	"github.com/sirupsen/logrus"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/ledger"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// maxLogged is how many differences are logged one by one.
const maxLogged = 1000

// Server tells of the account of the server it is part of. All fields are needed.
type Server struct {
	API    API
	Ledger ledger.Reader
	// About says what the account is complete in, and Dump is the whole account.
	About, Dump func() reserver.DumpAnswer
	Log         logrus.FieldLogger

	asked sync.Mutex // held while a request is compared for
}

// ServeDiff serves GET /debug/diff. One request at a time: each has the API server list all pods.
func (s *Server) ServeDiff(w http.ResponseWriter, r *http.Request) error {
	if !s.asked.TryLock() {
		return httpjson.Errorf(http.StatusServiceUnavailable, "the ledger is being compared for another request: ask again in a moment")
	}
	defer s.asked.Unlock()
	answer, err := s.Diff(r.Context())
	if err != nil {
		return err
	}
	httpjson.Write(w, http.StatusOK, answer)
	return nil
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
		if i == maxLogged {
			s.Log.WithField("more", len(found.Differences)-i).Warn("debug diff: more differences are not logged one by one")
			break
		}
		s.Log.Warn("debug diff: " + found.Differences[i].String())
	}
	s.Log.WithFields(logrus.Fields{"compared": found.Compared, "differences": len(found.Differences)}).Info("debug diff: done")
}
