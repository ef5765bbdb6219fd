package devices

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// names are claims of the namespace.
func names(list ...string) (claims []ClaimName) {
	for _, name := range list {
		claims = append(claims, ClaimName{Name: name})
	}
	return claims
}

func TestReadAsked(t *testing.T) {
	for annotation, want := range map[string]Asked{
		"": {}, "  ": {},
		"k80-erc":        {Claims: names("k80-erc")},
		"k80-erc,other":  {Claims: names("k80-erc", "other")},
		" b , a.c ":      {Claims: names("b", "a.c")},
		"template:gpu,b": {Claims: []ClaimName{{Name: "gpu", Template: true}, {Name: "b"}}},
		"gpu,template:gpu": {Claims: []ClaimName{
			{Name: "gpu"}, {Name: "gpu", Template: true},
		}},
		"main=b": {Claims: names("b"), Containers: []ContainerClaims{{"main", []int{0}}}},
		"main=b,a;log=c": {Claims: names("b", "a", "c"), Containers: []ContainerClaims{
			{"main", []int{0, 1}}, {"log", []int{2}},
		}},
		" main = b , shared ; log = shared,c ": {Claims: names("b", "shared", "c"), Containers: []ContainerClaims{
			{"main", []int{0, 1}}, {"log", []int{1, 2}},
		}},
		"main=template:gpu;log=template:gpu": {
			Claims: []ClaimName{{Name: "gpu", Template: true}},
			Containers: []ContainerClaims{
				{"main", []int{0}}, {"log", []int{0}},
			},
		},
	} {
		got, err := ReadAsked(annotation)
		require.NoError(t, err, annotation)
		assert.Equal(t, want, got, annotation)
	}
}

func TestReadAskedRefuses(t *testing.T) {
	for annotation, want := range map[string]string{
		",":                                 `annotation globalreserve.io/extended-resource-claims: "" is no claim's name: write names of claims of the pod's namespace`,
		"a,":                                `"" is no claim's name`,
		"other-ns/a":                        `"other-ns/a" is no claim's name`,
		"A":                                 `"A" is no claim's name`,
		"template:":                         `"template:" is no claim's name`,
		"template:A":                        `"template:A" is no claim's name`,
		"tmpl:a":                            `"tmpl:a" is no claim's name: write names of claims of the pod's namespace, or template:NAME`,
		"a, a":                              `a is named twice: write it once`,
		"template:a,template:a":             `template:a is named twice`,
		strings.Repeat("a,", 16) + "a":      `a is named twice`,
		"a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q": `more than 16 claims: claim several devices by one claim's count`,
		"x=a,b,c,d,e,f,g,h;y=i,j,k,l,m,n,o,p;z=q": `more than 16 claims`,
		"a;b":                    `"a" says for no container: write container=claim,claim;container=claim`,
		"a;main=b":               `"a" says for no container`,
		"main=b;a":               `"a" says for no container`,
		"main=a;":                `"" says for no container`,
		";":                      `"" says for no container`,
		"=a":                     `"" is no container's name: write container=claim,claim;container=claim`,
		"Main=a":                 `"Main" is no container's name`,
		"a.b=a":                  `"a.b" is no container's name`,
		"a,main=b":               `"a,main" is no container's name`,
		"main=":                  `container main has no claims: leave it out`,
		"main=a,":                `"" is no claim's name`,
		"main=a=b":               `"a=b" is no claim's name`,
		"main=a,a":               `a is named twice for container main`,
		"m=a;m=b":                `container m is there twice`,
		"m=a;n=a,A":              `"A" is no claim's name`,
		strings.Repeat("a", 300): `"` + strings.Repeat("a", 253) + `" is no claim's name`,
		strings.Repeat("m=a;", 1024) +
			"n=b": `longer than 4096 bytes: give claims shorter names, or name them for fewer containers`,
	} {
		got, err := ReadAsked(annotation)
		require.Error(t, err, annotation)
		assert.ErrorContains(t, err, want, annotation)
		assert.Empty(t, got, annotation)
	}
}

// Whatever is written, what is read of it names each claim and each container once, and no claim that no container has.
func FuzzReadAsked(f *testing.F) {
	for _, text := range []string{
		"", "a,b", "main=a,b;log=b", "template:a", "main=template:a", ";=,", "a=b=c",
		"\xff=\x00;", "m=a;m=a",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		asked, err := ReadAsked(text)
		if err != nil {
			require.Empty(t, asked)
			return
		}
		claims, named, containers := map[ClaimName]bool{}, map[int]bool{}, map[string]bool{}
		for _, claim := range asked.Claims {
			require.False(t, claims[claim], "%s twice", claim)
			claims[claim] = true
			again, err := ReadAsked(claim.String())
			require.NoError(t, err)
			require.Equal(t, []ClaimName{claim}, again.Claims)
		}
		for _, c := range asked.Containers {
			require.False(t, containers[c.Name], "%s twice", c.Name)
			require.NotEmpty(t, c.Claims)
			containers[c.Name] = true
			for _, k := range c.Claims {
				named[k] = true
				require.Less(t, k, len(asked.Claims))
			}
		}
		if len(asked.Containers) > 0 {
			require.Len(t, named, len(asked.Claims))
		}
	})
}

func TestTemplateClaim(t *testing.T) {
	assert.Equal(t, "web-0-gpu-"+TemplateClaim("web-0", "u", "gpu")[len("web-0-gpu-"):],
		TemplateClaim("web-0", "u", "gpu"))
	long := strings.Repeat("a", 99) + "." + strings.Repeat("b", 100)
	seen := map[string]bool{}
	for _, pod := range []string{"p", "p-a", long} {
		for _, template := range []string{"b", "a-b", long} {
			for _, uid := range []types.UID{"u", "v"} {
				name := TemplateClaim(pod, uid, template)
				assert.Empty(t, validation.IsDNS1123Subdomain(name), name)
				assert.False(t, seen[name], "%s twice", name)
				assert.Equal(t, name, TemplateClaim(pod, uid, template))
				seen[name] = true
			}
		}
	}
	assert.Empty(t, TemplateClaim("p", "", "gpu"), "it is not known who the pod will be")
}
