package cluster

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
	"github.com/globalreserve/globalreserve/pkg/devices"
	"github.com/globalreserve/globalreserve/pkg/ledger"
)

// claiming is a pod with a sidecar that asks for claims.
func claiming(text string) *v1.Pod {
	return aPod("p", 2, devicesAre(text, ""), func(p *v1.Pod) {
		always := v1.ContainerRestartPolicyAlways
		p.Spec.InitContainers = []v1.Container{{Name: "setup"}, {Name: "proxy", RestartPolicy: &always}}
		p.Spec.Containers = []v1.Container{{Name: "main"}, {Name: "log"}}
	})
}

func TestClaimsOfContainers(t *testing.T) {
	for text, want := range map[string]DeviceAnnotations{
		"c,d": {Claims: []string{"c", "d"}},
		"setup=c;proxy=d;log=c,e": {Claims: []string{"c", "d", "e"}, Containers: []devices.ContainerClaims{
			{Name: "setup", Claims: []int{0}}, {Name: "proxy", Claims: []int{1}}, {Name: "log", Claims: []int{0, 2}},
		}},
		"main=c;other=d": {Err: "annotation globalreserve.io/extended-resource-claims: the pod has no container other: " +
			"write names of its containers or initContainers"},
		"main=c,c": {Err: "annotation globalreserve.io/extended-resource-claims: c is named twice for container " +
			"main: write it once, and claim more devices by its count"},
		"c,template:gpu": {Claims: []string{"c", devices.TemplateClaim("p", "uid-p", "gpu")}, Templates: []string{"", "gpu"}},
	} {
		pod := claiming(text)
		pod.UID = "uid-p"
		want.Asked = text
		assert.Equal(t, &want, ReadDeviceAnnotations(pod), text)
	}
	assert.Nil(t, ReadDeviceAnnotations(claiming(" ")))
	copied := claiming("other=c")
	copied.Spec = v1.PodSpec{}
	assert.Empty(t, ReadDeviceAnnotations(copied).Err,
		"nobody knows the containers of a pod that only its name is known of")
	copied.Spec.Containers = []v1.Container{{}}
	assert.Empty(t, ReadDeviceAnnotations(copied).Err, "nor where their names are left out")
	assert.True(t, ReadDeviceAnnotations(claiming("main=c;log=d")).
		Same(ReadDeviceAnnotations(claiming(" main = c; log=d"))))
	assert.False(t, ReadDeviceAnnotations(claiming("main=c;log=d")).
		Same(ReadDeviceAnnotations(claiming("main=c;proxy=d"))))
	assert.False(t, ReadDeviceAnnotations(claiming("main=c,d")).Same(ReadDeviceAnnotations(claiming("c,d"))))
}

func TestGivenIDs(t *testing.T) {
	const asked = "main=one,two;log=two,other"
	counts := []int{1, 2, 1}
	for given, want := range map[string]string{
		"":                              "",
		"main=a,b,c;log=b,c,d":          "a,b,c,d",
		"main=a,b,c;log=b,c,a":          "a,b,c,a", // the a of another resource
		"a,b,c,d":                       "a,b,c,d",
		"a,b,,":                         "a,b,,",
		"main=a,b,c;log=b,x,d":          "a,b,c,x,d", // edited: all that is said is counted
		"main=a,b;log=b,c,d":            "a,b,c,d",
		"main=a,b,c,x;log=b,c,d":        "a,b,c,x,d",
		"main=a":                        "a",
		"main=a,b,c;log=b,c,d;setup=e":  "a,b,c,d,e",
		"main=a,b,c;b,c,d":              "a,b,c,d",
		"main=,;=;;log=":                "",
		"other=a,b,c;another=b,c,d":     "a,b,c,d",
		"main=a,b,c;log=b,c,d;log=b,=c": "a,b,c,d,=c",
	} {
		marks := NewDeviceAnnotations(ledger.PodRef{}, asked)
		marks.Given = given
		assert.Equal(t, want, marks.GivenIDs(counts), given)
	}
	marks := NewDeviceAnnotations(ledger.PodRef{}, asked)
	marks.Given = "main=a,b,c;log=b,c,a"
	assert.Equal(t, "a,b,c", marks.GivenIDs(nil), "nobody knows the claims: every device with one of the IDs is meant")
	assert.Empty(t, marks.Tell(nil))
}

// Whatever a pod asks for, what it is told is read as what it was given; and whatever somebody writes in the place of
// that, no ID that stands there is missed.
func FuzzGivenIDs(f *testing.F) {
	f.Add("main=a,b;log=b,c", "x,y,z", "main=x,y;log=y,z")
	f.Add("a,b", "x,y", ",,=;")
	f.Add("main=a", "x", "main=x;main=x;\x00=\xff")
	f.Fuzz(func(t *testing.T, asked, ids, edited string) {
		marks := NewDeviceAnnotations(ledger.PodRef{Name: "p", UID: "u"}, asked)
		if marks == nil {
			return
		}
		marks.Given = edited
		found := strings.FieldsFunc(marks.GivenIDs(nil), func(c rune) bool { return c == ',' })
		for section := range strings.SplitSeq(edited, ";") {
			_, list, ok := strings.Cut(section, "=")
			if !ok {
				list = section
			}
			if strings.Contains(edited, "=") {
				for _, id := range strings.FieldsFunc(list, func(c rune) bool { return c == ',' }) {
					require.Contains(t, found, id)
				}
			}
		}
		if marks.Err != "" || strings.ContainsAny(ids, "=; ") {
			return
		}
		list := slices.DeleteFunc(strings.Split(ids, ","), func(id string) bool { return id == "" })
		var given []ledger.GivenDevices
		var counts []int
		for k, claim := range marks.Claims {
			count := min(k%3+1, len(list))
			if count == 0 {
				return
			}
			given = append(given, ledger.GivenDevices{Claim: ledger.DeviceClaimRef{Name: claim}, IDs: list[:count]})
			counts = append(counts, count)
			list = list[count:]
		}
		var plain []string
		for _, g := range given {
			plain = append(plain, g.IDs...)
		}
		marks.Given = marks.Tell(given)
		require.Equal(t, strings.Join(plain, ","), marks.GivenIDs(counts), marks.Given)
	})
}

// The pod is told per container where it asked per container.
func TestGivenOfContainers(t *testing.T) {
	given := []ledger.GivenDevices{
		{Claim: ledger.DeviceClaimRef{Name: "c"}, IDs: []string{"0", "1"}},
		{Claim: ledger.DeviceClaimRef{Name: "d"}, IDs: []string{"0"}},
	}
	for text, want := range map[string]string{
		"c,d": "0,1,0", "main=c;log=d": "main=0,1;log=0", "main=c,d;log=d": "main=0,1,0;log=0",
		"log=c;setup=d,c": "log=0,1;setup=0,0,1",
	} {
		info := read(t, claiming(text))
		assert.Equal(t, map[string]string{v1alpha1.ExtendedResourcesAnnotation: want}, info.Given(nil, given), text)
	}
}
