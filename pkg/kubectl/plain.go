package kubectl

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// plainWriter makes a terminal show what is written, and do nothing else. Much of what the plugin prints was written by
// tenants, such as the scheduler's name in a pod: escape sequences in it could forge other lines, or type commands.
type plainWriter struct{ to io.Writer }

// Write implements io.Writer. What is written at once begins and ends between two characters.
func (w plainWriter) Write(text []byte) (int, error) {
	if _, err := w.to.Write(plain(text)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// plain writes control characters, those that change the direction of writing, and bytes that are no characters as
// escapes, of which those of characters mean the same in JSON. Lines and tabs stay.
func plain(text []byte) []byte {
	shown := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			shown = fmt.Appendf(shown, `\x%02x`, text[0])
		case r != '\n' && r != '\t' && unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			shown = fmt.Appendf(shown, `\u%04x`, r)
		default:
			shown = append(shown, text[:size]...)
		}
		text = text[size:]
	}
	return shown
}

var breaks = strings.NewReplacer("\n", `\n`, "\t", `\t`, "\v", `\v`, "\f", `\f`, "\r", `\r`)

// oneLine keeps a text that others wrote within its line and its column.
func oneLine(text string) string { return string(plain([]byte(breaks.Replace(text)))) }
