package release

import (
	"testing"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// goreleaser takes the file, and a release has archives, their checksums and a bill of materials of each program.
func TestReleaseIsConfigured(t *testing.T) {
	project, err := config.Load("../../.goreleaser.yaml")
	require.NoError(t, err)
	assert.Equal(t, "globalreserve", project.ProjectName)
	assert.Len(t, project.Builds, 2)
	assert.Len(t, project.Archives, 2)
	assert.Equal(t, "checksums.txt", project.Checksum.NameTemplate)
	require.Len(t, project.SBOMs, 1)
	bill := project.SBOMs[0]
	assert.Equal(t, "binary", bill.Artifacts)
	assert.Equal(t, "bin/tools/sbom", bill.Cmd)
	assert.Equal(t, []string{"make bin/tools/sbom"}, project.Before.Hooks, "it is built before")
}
