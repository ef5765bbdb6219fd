package rest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// Whatever a pod's author calls a gang, all gangs are listed, page by page.
func TestGangsOfAnyNameAreListed(t *testing.T) {
	for what, name := range map[string]string{
		"a line end": "bad\nname", "an escape": "bad\x1b]0;name\x07",
		"cut within a character": "b" + strings.Repeat("é", 200),
	} {
		t.Run(what, func(t *testing.T) {
			f := newFixture(t, Limits{})
			f.gang("team-a", "good", 2, "1")
			for _, pod := range f.gang("team-a", "bad", 2, "1") {
				pod.Annotations[v1alpha1.GangAnnotation] = name
				f.Bring(pod)
			}
			f.gang("team-b", "good", 2, "1")
			next, listed := "", 0
			for range 3 {
				answer := f.serve(http.MethodGet, "/v1/gangs?limit=1&continue="+url.QueryEscape(next), "")
				require.Equal(t, http.StatusOK, answer.Code, answer.Body)
				var page reserver.GangsAnswer
				require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &page))
				listed += len(page.Gangs)
				next = page.Continue
			}
			assert.Equal(t, 3, listed)
			assert.Empty(t, next)
		})
	}
}
