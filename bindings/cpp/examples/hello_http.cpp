// hello_http: answers each GET with a greeting. HTTP/1.1 with connections that stay open, on an iostream.
//
//   g++ -std=c++17 -O2 hello_http.cpp -o hello_http $(pkg-config --cflags --libs gosched)
//   ./hello_http 8080; curl localhost:8080/gopher
#include "serve.hpp"

#include <sstream>
#include <string>

/// A line without its end. false: there is no whole line within limit, which is lowered by what was read.
static bool read_line(std::istream &in, std::string &line, std::size_t &limit)
{
    line.clear();
    for (char c; limit > 0 && in.get(c); limit--) {
        if (c == '\n') {
            if (!line.empty() && line.back() == '\r')
                line.pop_back();
            return true;
        }
        line += c;
    }
    return false;
}

static void answer(std::ostream &out, const char *status, const std::string &body, bool with_body = true)
{
    out << "HTTP/1.1 " << status << "\r\nContent-Type: text/plain\r\nContent-Length: " << body.size() << "\r\n\r\n";
    if (with_body)
        out << body;
}

static void talk(gs::tcp_stream stream)
{
    gs::tcp_iostream io(std::move(stream));
    for (std::string line, method, path, version;;) {
        io.socket().set_deadline(std::chrono::seconds(60)); // for the whole request and its answer
        std::size_t limit = 16 * 1024;
        if (!read_line(io, line, limit)) {
            if (limit == 0)
                answer(io, "431 Request Header Fields Too Large", "");
            return;
        }
        std::istringstream words(line);
        if (!(words >> method >> path >> version) || version.compare(0, 7, "HTTP/1.") != 0)
            return answer(io, "400 Bad Request", "");
        while (read_line(io, line, limit) && !line.empty())
            continue;
        if (limit == 0)
            return answer(io, "431 Request Header Fields Too Large", "");
        if (!io)
            return;
        if (method != "GET" && method != "HEAD")
            return answer(io, "405 Method Not Allowed", "");
        answer(io, "200 OK", "hello, " + path + "\n", method == "GET");
    }
}

int main(int argc, char **argv)
{
    return serve("hello_http", port_of(argc, argv, 8080), talk);
}
