// application QUEUE USER PASSWORD AUTHORITY URL...: with Apache Qpid Proton's C++ client, sends 1, 2, 3... to a queue and
// receives them, over one connection each, until its input ends and all that was accepted is received. Tells on its
// output, one event a line. Without a USER it is anonymous, without an AUTHORITY it uses no TLS.

#include <atomic>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <proton/connection.hpp>
#include <proton/connection_options.hpp>
#include <proton/container.hpp>
#include <proton/delivery.hpp>
#include <proton/error_condition.hpp>
#include <proton/message.hpp>
#include <proton/messaging_handler.hpp>
#include <proton/reconnect_options.hpp>
#include <proton/sender.hpp>
#include <proton/ssl.hpp>
#include <proton/tracker.hpp>
#include <proton/transport.hpp>
#include <proton/work_queue.hpp>

static const int WINDOW = 20;
static const proton::duration TICK = proton::duration(5);
static std::atomic<bool> stopping(false);

static void say(const std::string& event, const std::string& name, const std::string& value) {
    std::cout << "{\"event\": \"" << event << "\", \"" << name << "\": " << value << "}" << std::endl;
}

static std::string quoted(const std::string& text) {
    std::string result = "\"";
    for (char c : text) {
        if (c == '"' || c == '\\') result += '\\';
        result += c;
    }
    return result + '"';
}

class application : public proton::messaging_handler {
  public:
    application(const std::vector<std::string>& arguments)
        : queue(arguments[0]), user(arguments[1]), password(arguments[2]), authority(arguments[3]),
          first(arguments[4]), others(arguments.begin() + 5, arguments.end()) {}

    void on_container_start(proton::container& container) override {
        proton::connection_options options;
        if (!user.empty()) options.user(user).password(password).sasl_allowed_mechs("SCRAM-SHA-256 PLAIN");
        if (!authority.empty()) options.ssl_client_options(proton::ssl_client_options(authority));
        options.idle_timeout(2 * proton::duration::SECOND);
        options.failover_urls(others);
        options.reconnect(proton::reconnect_options());
        sends = container.connect(first, options);
        receives = container.connect(first, options);
        sender = sends.open_sender(queue);
        receives.open_receiver(queue);
        tick(container);
    }

    void on_connection_open(proton::connection& connection) override {
        say("open", "name", connection == sends ? "\"sends\"" : "\"receives\"");
    }

    void on_transport_error(proton::transport& transport) override {
        if (transport.connection() == sends) pending.clear(); // they have no outcome: they are not sent again
        std::cerr << transport.error().what() << std::endl;
    }

    void on_tracker_accept(proton::tracker& tracker) override {
        auto found = pending.find(tracker.tag());
        if (found == pending.end()) return;
        accepted.insert(found->second);
        say("accepted", "number", std::to_string(found->second));
        pending.erase(found);
    }

    void on_tracker_reject(proton::tracker&) override { say("error", "text", "\"rejected\""); }

    void on_tracker_release(proton::tracker&) override { say("error", "text", "\"released\""); }

    void on_message(proton::delivery&, proton::message& message) override {
        int64_t number = proton::get<int64_t>(message.body());
        received.insert(number);
        say("received", "number", std::to_string(number));
    }

    void on_error(const proton::error_condition& error) override { say("error", "text", quoted(error.what())); }

    void on_connection_close(proton::connection&) override {
        if (!ended) say("error", "text", "\"closed\"");
    }

  private:
    void tick(proton::container& container) {
        if (stopping && pending.empty() && left().empty()) {
            ended = true;
            sends.close();
            receives.close();
            return;
        }
        if (!stopping && sender.active() && sender.credit() > 0 && pending.size() < WINDOW) {
            ++last;
            pending[sender.send(proton::message(last)).tag()] = last;
        }
        container.schedule(TICK, [this, &container]() { tick(container); });
    }

    std::set<int64_t> left() const {
        std::set<int64_t> result;
        for (int64_t number : accepted)
            if (!received.count(number)) result.insert(number);
        return result;
    }

    std::string queue, user, password, authority, first;
    std::vector<std::string> others;
    proton::connection sends, receives;
    proton::sender sender;
    int64_t last = 0;
    bool ended = false;
    std::map<proton::binary, int64_t> pending;
    std::set<int64_t> accepted, received;
};

int main(int count, char** values) {
    application handler(std::vector<std::string>(values + 1, values + count));
    std::thread([] {
        while (std::cin.get() != std::char_traits<char>::eof()) {}
        stopping = true;
    }).detach();
    proton::container(handler).run();
    return 0;
}
