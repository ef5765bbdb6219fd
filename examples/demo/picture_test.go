package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const documents = "../../docs"

// TestCommittedPage compares the page and the picture in docs/ with what their recording makes.
func TestCommittedPage(t *testing.T) {
	r, err := loadRecording(filepath.Join(documents, recordingFile))
	require.NoError(t, err)
	files, err := r.files()
	require.NoError(t, err)
	require.Len(t, files, 2)
	for name, want := range files {
		have, err := os.ReadFile(filepath.Join(documents, name))
		require.NoError(t, err)
		assert.Equal(t, string(want), string(have), "docs/%s is not what `make demo-page` makes of docs/%s", name,
			recordingFile)
	}
}

// TestRecordedNumbers adds up the committed recording: what the table says is what was recorded.
func TestRecordedNumbers(t *testing.T) {
	r, err := loadRecording(filepath.Join(documents, recordingFile))
	require.NoError(t, err)
	for _, run := range r.Runs {
		last := run.Binds[len(run.Binds)-1].At
		nodes := run.nodesAt(last)
		fullest := 0
		for _, pods := range nodes {
			fullest = max(fullest, len(pods))
		}
		assert.Len(t, run.Binds, run.Result.Bound, run.Result.Label)
		assert.Equal(t, run.Result.Overcommitted, overcommitted(nodes), run.Result.Label)
		assert.EqualValues(t, run.Result.WorstUsed, fullest*podCPUs*1000, run.Result.Label)
		assert.Len(t, run.Conflicts, run.Result.Refused, "what the observing server saw of the run %s", run.Result.Label)
		assert.NotEqual(t, nodes, run.nodesAt(last/2), "nothing moved in the second half")
	}
	assert.NotZero(t, r.Runs[0].Result.Overcommitted, "the first run shows nothing")
	assert.Zero(t, r.Runs[1].Result.Overcommitted)
}

func TestRecordingOfAnotherDemo(t *testing.T) {
	file := filepath.Join(t.TempDir(), recordingFile)
	_, err := loadRecording(file)
	require.ErrorContains(t, err, "--record")
	require.NoError(t, os.WriteFile(file, []byte(`{"nodes": 3}`), 0o600))
	_, err = loadRecording(file)
	require.ErrorContains(t, err, "record it again")

	r := newRecording()
	r.Runs = []run{{Result: bad(), Binds: []bind{{1, "a", 0, 7}}}, {Result: good()}}
	require.NoError(t, r.save(file))
	back, err := loadRecording(file)
	require.NoError(t, err)
	assert.Equal(t, r, back)
}
