package ledgertest

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// RunTranscript runs the transcript in a file against a fresh ledger and fails where an answer differs from the one
// written down. With update it writes the answers into the file instead.
//
// A transcript is a list of steps. Each is a command, for some commands followed by indented lines with pods, then a
// line of four dashes, then the answer up to an empty line:
//
//	reserve ttl=10s
//	  a@1 n1 cpu=2 by=s1
//	----
//	granted 1
//	r2 SlotPlaced in memory for a@1 on n1 by s1 until 10s
//
// After the answer itself come the events the step caused, each with its revision. Lines that start with # are
// comments. The ledger's invariants are checked after each step.
//
// a@1 is the pod ns/a with the UID a@1; a alone is one without a UID. Amounts are plain numbers (milli-CPU, bytes,
// pieces). r/x is the slot x of the reservation ns/r, and other/r/x that of other/r. Time starts at 0s and passes with
// the command "time". The commands are methods of transcript: one for each method of the ledger, and "show".
func RunTranscript(t *testing.T, path string, update bool, check Check) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	run := newTranscript(check)
	var out bytes.Buffer
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	for at := 0; at < len(lines); {
		if line := lines[at]; line == "" || strings.HasPrefix(line, "#") {
			fmt.Fprintln(&out, line)
			at++
			continue
		}
		first := at
		for at < len(lines) && lines[at] != "----" {
			at++
		}
		require.Less(t, at, len(lines), "%s:%d: no ---- follows this command", path, first+1)
		command := lines[first:at]
		at++
		var want []string
		for ; at < len(lines) && lines[at] != ""; at++ {
			want = append(want, lines[at])
		}
		got, err := run.step(command)
		require.NoError(t, err, "%s:%d", path, first+1)
		if !update {
			require.Equal(t, strings.Join(want, "\n"), got, "%s:%d: %s", path, first+1, command[0])
		}
		if got != "" {
			got += "\n"
		}
		fmt.Fprintf(&out, "%s\n----\n%s", strings.Join(command, "\n"), got)
	}
	if update {
		require.NoError(t, os.WriteFile(path, out.Bytes(), 0o644))
	}
}
