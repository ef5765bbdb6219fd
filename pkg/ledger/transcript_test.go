package ledger_test

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/test/ledgertest"
)

var update = flag.Bool("update", false, "write the answers the ledger gives into testdata")

// TestTranscripts runs the transcripts in testdata: one for each change of state and for each way observations can be
// late or out of order. RunTranscript says how to read them.
func TestTranscripts(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			ledgertest.RunTranscript(t, path, *update, check)
		})
	}
}
